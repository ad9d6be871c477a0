"""A GPU's memory and clock for measuring, through PyTorch or CuPy, whichever is installed."""

from __future__ import annotations

from typing import Any

from .. import control
from .driver_gpu import DriverGpu
from .output import Unavailable

FLUSH_BYTES = 512 << 20  # far more than any GPU's L2
_PLAIN = {"float16", "float32"}  # the dtypes that arrays can have without a framework


class TorchGpu:
    """PyTorch's current device."""

    def __init__(self, torch: Any) -> None:
        self.torch: Any = torch  # for the computations of the peer
        self.ordinal = torch.cuda.current_device()
        self.out_of_memory = torch.cuda.OutOfMemoryError
        self._large = torch.ones(FLUSH_BYTES // 4, device="cuda")

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Returns a tensor of normally distributed numbers."""
        torch = self.torch
        drawn = "bfloat16" if dtype.startswith("float8") else dtype
        tensor = torch.randn(shape, device="cuda", dtype=getattr(torch, drawn))
        return tensor.to(getattr(torch, dtype))

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Returns a tensor that is not initialised."""
        return self.torch.empty(shape, device="cuda", dtype=getattr(self.torch, dtype))

    def as_float(self, matrix: Any) -> Any:
        """Returns a copy in float32."""
        return matrix.to(self.torch.float32, copy=True)

    def flush(self) -> None:
        """Evicts the caller's data from L2 by reading. The timed call would first have to write
        back the lines of a memset."""
        self._large.sum()

    def event(self) -> Any:
        """Records an event on the stream."""
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def microseconds(self, before: Any, after: Any) -> float:
        """Waits for two events and returns the time between them."""
        return before.elapsed_time(after) * 1e3

    def synchronize(self) -> None:
        """Waits for the device."""
        self.torch.cuda.synchronize()


class CupyGpu:
    """CuPy's current device, for float16 and float32; CuPy has no other dtypes of Kiln's."""

    torch: Any = None

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.ordinal = cupy.cuda.Device().id
        self.out_of_memory = cupy.cuda.memory.OutOfMemoryError
        self._large = cupy.ones(FLUSH_BYTES // 4, dtype="float32")

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Returns an array of normally distributed numbers."""
        return self._cupy.random.standard_normal(shape, dtype="float32").astype(dtype)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Returns an array that is not initialised."""
        return self._cupy.empty(shape, dtype=dtype)

    def as_float(self, matrix: Any) -> Any:
        """Returns a copy in float32."""
        return matrix.astype("float32")

    def flush(self) -> None:
        """Does the same as TorchGpu.flush."""
        self._large.sum()

    def event(self) -> Any:
        """Records an event on the stream."""
        event = self._cupy.cuda.Event()
        event.record()
        return event

    def microseconds(self, before: Any, after: Any) -> float:
        """Waits for two events and returns the time between them."""
        return self._cupy.cuda.get_elapsed_time(before, after) * 1e3

    def synchronize(self) -> None:
        """Waits for the device."""
        self._cupy.cuda.Device().synchronize()


def find_gpu(*dtypes: str, may_be_bare: bool = False) -> TorchGpu | CupyGpu | DriverGpu:
    """The GPU, accessed through PyTorch, CuPy or, if these dtypes allow it, only the driver.
    Raises Unavailable."""
    report = control.diagnose()
    if not report["devices"]:
        raise Unavailable(f"no GPU: {report['driver']['problem'] or 'the driver finds none'}")
    torch_problem = cupy_problem = "is not installed"
    try:
        import torch
    except ImportError:
        pass
    else:
        if torch.cuda.is_available():
            started = torch.cuda.is_initialized()  # before that, a broken device is PyTorch's error
            _refuse_broken(report, torch.cuda.current_device() if started else 0)
            return TorchGpu(torch)
        torch_problem = "finds no CUDA device (a build without CUDA?)"
    try:
        import cupy
    except ImportError:
        pass
    else:
        if set(dtypes) <= _PLAIN:
            _refuse_broken(report, cupy.cuda.Device().id)
            return CupyGpu(cupy)
        cupy_problem = f"has no {' or '.join(sorted(set(dtypes) - _PLAIN))}"
    _refuse_broken(report, 0)
    if may_be_bare and set(dtypes) <= _PLAIN:
        return DriverGpu()
    raise Unavailable(
        "memory on the GPU comes from PyTorch or CuPy: "
        f"PyTorch {torch_problem}, CuPy {cupy_problem}; install PyTorch with CUDA, or CuPy and "
        "measure float16, which kiln bench does without either"
    )


def _refuse_broken(report: dict[str, Any], ordinal: int) -> None:
    """Raises Unavailable if the device that is to be measured cannot be used; others may be so."""
    for device in report["devices"]:
        if device["ordinal"] == ordinal and "problem" in device:
            raise Unavailable(f"cuda:{ordinal} cannot be used: {device['problem']}")
