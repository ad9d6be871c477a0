"""A GPU's memory and clock through the driver alone, for measuring where there is neither PyTorch
nor CuPy. Like them, it uses the device's primary context and the default stream."""

from __future__ import annotations

import ctypes
import itertools
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

from .. import jit
from .output import Unavailable

_TYPES = {"float16": ("<f2", "e", 2), "float32": ("<f4", "f", 4)}
_PATTERN = 1 << 16  # how many random numbers are drawn; larger arrays repeat them
_OUT_OF_MEMORY = 2
_FLUSH_SHAPE = (32768, 8192)  # of float16: 512 MiB, far more than any GPU's L2


class DriverProblem(Unavailable):
    """A call of the driver failed."""


class OutOfMemory(DriverProblem):
    """The GPU has not enough memory left."""


class DeviceArray:
    """Memory on the GPU, read through `__cuda_array_interface__`; freed with its last view."""

    def __init__(
        self, memory: Any, shape: Sequence[int], strides: Sequence[int], kind: str
    ) -> None:
        self.memory, self.shape, self.strides, self.kind = memory, shape, strides, kind

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": tuple(self.shape),
            "strides": tuple(self.strides),
            "typestr": _TYPES[self.kind][0],
            "data": (self.memory.address, False),
            "version": 3,
        }

    @property
    def T(self) -> DeviceArray:
        """The dimensions in reverse order, without a copy."""
        return DeviceArray(self.memory, self.shape[::-1], self.strides[::-1], self.kind)


class _Memory:
    def __init__(self, driver: Any, size: int) -> None:
        self._driver = driver
        pointer = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.address = pointer.value

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._driver.library.cuMemFree_v2(ctypes.c_uint64(self.address))


class _Driver:
    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        """Raises for every result other than CUDA_SUCCESS."""
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            kind = OutOfMemory if result == _OUT_OF_MEMORY else DriverProblem
            raise kind(f"{name} failed with CUresult {result}: check nvidia-smi and `kiln doctor`")


class DriverGpu:
    """CUDA device 0, for float16 and float32: `__cuda_array_interface__` has no bfloat16."""

    torch: Any = None
    ordinal = 0
    out_of_memory = OutOfMemory

    def __init__(self) -> None:
        self._driver = _Driver()
        context = ctypes.c_void_p()
        self._driver.call("cuInit", 0)
        self._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._driver.call("cuCtxSetCurrent", context)
        weights = self.random(_FLUSH_SHAPE, "float16")
        row, out = (
            self.random((1, _FLUSH_SHAPE[1]), "float16"),
            self.empty((1, _FLUSH_SHAPE[0]), "float16"),
        )
        self._read = lambda: jit.gemm(row, weights.T, out=out)

    def random(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Returns an array of normally distributed numbers, the same in every run."""
        array = self.empty(shape, dtype)
        _, letter, size = _TYPES[dtype]
        draw = random.Random(0).gauss
        pattern = struct.pack(f"{_PATTERN}{letter}", *(draw(0, 1) for _ in range(_PATTERN)))
        block = pattern * 64
        total = math.prod(shape) * size
        for start in range(0, total, len(block)):
            part = min(len(block), total - start)
            target = ctypes.c_uint64(array.memory.address + start)
            self._driver.call("cuMemcpyHtoD_v2", target, block, ctypes.c_size_t(part))
        return array

    def empty(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Returns an array that is not initialised."""
        size = _TYPES[dtype][2]
        strides = [
            size * step for step in itertools.accumulate(shape[:0:-1], int.__mul__, initial=1)
        ]
        return DeviceArray(
            _Memory(self._driver, math.prod(shape) * size), shape, strides[::-1], dtype
        )

    def flush(self) -> None:
        """Evicts the caller's data from L2 with a product that reads half a GiB of weights."""
        self._read()

    def event(self) -> Any:
        """Records an event on the default stream."""
        event = ctypes.c_void_p()
        self._driver.call("cuEventCreate", ctypes.byref(event), 0)
        self._driver.call("cuEventRecord", event, None)
        return event

    def microseconds(self, before: Any, after: Any) -> float:
        """Waits for two events and returns the time between them; each pair is used once."""
        milliseconds = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), before, after)
        for event in (before, after):
            self._driver.call("cuEventDestroy_v2", event)
        return milliseconds.value * 1e3

    def synchronize(self) -> None:
        """Waits for the device."""
        self._driver.call("cuCtxSynchronize")
