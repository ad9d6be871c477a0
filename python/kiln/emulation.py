"""kiln.emulate: any PTX kernel on the emulated device."""

from __future__ import annotations

import math
import operator
import os
import pathlib
import struct
from collections.abc import Sequence
from typing import Any, SupportsIndex, Union

from . import _core

Shape = Union[int, Sequence[int]]

# Formats of struct for Python numbers; a bit type takes whole numbers.
_WHOLE = {1: "B", 2: "H", 4: "I", 8: "Q"}
_REAL = {"f16": "e", "f32": "f", "f64": "d"}


class TensorMap:
    """A tensor map of the emulated device, in place of a CUtensorMap: a parameter of 128 bytes.

    array    NumPy array of 1 to 5 dimensions. Its last stride is 1, the others are multiples of 16
             bytes, and its address is a multiple of 16
    box      what one copy moves: the number of elements in each dimension, in the array's order
    swizzle  0, 32, 64 or 128 bytes

    Raises ValueError for arguments that cuTensorMapEncodeTiled refuses.

        >>> import kiln, numpy
        >>> array = numpy.zeros((64, 64), numpy.float16)
        >>> map = kiln.TensorMap(array, box=(8, 64), swizzle=128)
        >>> len(map.words)  # the bytes of the parameter
        128
    """

    def __init__(self, array: Any, box: Sequence[int], *, swizzle: int = 0) -> None:
        self.array = array
        if array.ndim and array.strides[-1] != array.itemsize:
            raise ValueError("TensorMap: the array's last stride must be 1")
        self.words = _core.encode_tensor_map(
            array.__array_interface__["data"][0],
            array.dtype.name,
            array.shape[::-1],
            array.strides[-2::-1] if array.ndim > 1 else (),
            list(box)[::-1],
            swizzle,
        )


def emulate(
    ptx: str | bytes | os.PathLike[str],
    *,
    entry: str | None = None,
    grid: Shape = (1, 1, 1),
    block: Shape = (32, 1, 1),
    cluster: Shape = (1, 1, 1),
    arguments: Sequence[Any] = (),
    buffers: Sequence[Any] = (),
    shared_bytes: int = 0,
    arch: str | None = None,
    schedule: str = "late",
    seed: int = 0,
    checks: bool = True,
    step_limit: int = 0,
    trace: tuple[int, int] | None = None,
) -> None:
    """Runs one kernel of a PTX module on the emulated device, in place, and waits for it.

    ptx           the module's text, or the path of a file; bytes are always text
    entry         the kernel's name; None: the only kernel of the module
    grid, block, cluster   (x, y, z), or fewer numbers, or one number
    arguments     one for each parameter. For a pointer: a NumPy array or CPU PyTorch tensor, which
                  is read and written in place (writes to a read-only array are trapped), or None
                  for a null pointer. For a number: a Python number, or a NumPy scalar of the
                  parameter's size. For a struct: bytes, or a kiln.TensorMap
    buffers       arrays that the kernel reaches in other ways: through pointers in a struct
    shared_bytes  dynamic shared memory
    arch          the architecture of the emulated device, such as "sm_90a"; None: the module's
                  own target
    schedule      "late" does asynchronous work at the last legal moment, "eager" at once
    seed          0: warps and blocks take turns in order; any other number shuffles them
    checks        whether shared memory is watched for races, reads of what was never written and
                  missing fences
    step_limit    how many warp instructions one block may take; 0: no limit
    trace         (block, thread), linear indices: prints that thread's instructions to stderr

    Raises kiln.EmulatorError for PTX that is wrong, a wrong launch or a fault of the kernel, and
    ValueError and TypeError for arguments that do not fit the parameters.

        >>> import kiln, numpy
        >>> ptx = (
        ...     ".version 8.0 .target sm_80 .address_size 64 "
        ...     ".entry fill(.param .u64 out, .param .u32 value) {"
        ...     "  .reg .b32 %r<2>; .reg .b64 %d<2>;"
        ...     "  ld.param.u64 %d0, [out]; ld.param.u32 %r0, [value];"
        ...     "  mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4; add.s64 %d0, %d0, %d1;"
        ...     "  st.global.u32 [%d0], %r0; ret; }"
        ... )
        >>> out = numpy.zeros(4, numpy.uint32)
        >>> kiln.emulate(ptx, block=4, arguments=[out, 7])
        >>> out.tolist()
        [7, 7, 7, 7]
    """
    text = module_text(ptx)
    facts = find_entry(_core.ptx_entries(text), entry)
    block_bytes, spans = pack_arguments(facts, arguments)
    for index, buffer in enumerate(buffers):
        spans.append(_span(buffer, f"buffer {index}")[1])
    if schedule not in ("late", "eager"):
        raise ValueError(f"emulate: schedule must be 'late' or 'eager', got {schedule!r}")
    shapes = _shape("grid", grid), _shape("block", block), _shape("cluster", cluster)
    if not isinstance(shared_bytes, SupportsIndex) or not 0 <= operator.index(shared_bytes) < 2**32:
        raise ValueError(
            f"emulate: shared_bytes must be 0 or more and below 2^32, got {shared_bytes!r}"
        )
    options = f"{schedule},seed={seed:d},checks={'on' if checks else 'off'},steps={step_limit:d}"
    _core.run_ptx(
        text,
        facts["name"],
        arch or "",
        *shapes,
        shared_bytes,
        block_bytes,
        spans,
        options,
        *_traced(trace, *map(math.prod, shapes[:2])),
    )


def module_text(ptx: str | bytes | os.PathLike[str]) -> str:
    """The text itself, or that of the file that it names."""
    if isinstance(ptx, bytes):
        text = ptx.rstrip(b"\0").decode()
    elif isinstance(ptx, str) and ("\n" in ptx or ".version" in ptx or not ptx):
        text = ptx
    elif isinstance(ptx, (str, os.PathLike)):
        text = pathlib.Path(ptx).read_text(encoding="utf-8")
    else:
        raise TypeError(f"emulate: ptx must be text or a path, got {_kind(ptx)}")
    if not text.strip():
        raise ValueError("emulate: ptx is empty; give the text of a PTX module, or its path")
    return text


def find_entry(entries: Sequence[dict[str, Any]], name: str | None) -> dict[str, Any]:
    """The kernel of that name, or the only one."""
    names = ", ".join(entry["name"] for entry in entries) or "none"
    if name is None:
        if len(entries) != 1:
            raise ValueError(f"emulate: name the kernel with entry=; the module has {names}")
        return entries[0]
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise ValueError(f"emulate: the module has no kernel {name!r}; it has {names}")


def pack_arguments(
    entry: dict[str, Any], arguments: Sequence[Any]
) -> tuple[bytes, list[tuple[int, int, bool]]]:
    """The parameter block and the memory that it points to."""
    parameters = entry["parameters"]
    if len(arguments) != len(parameters):
        listed = ", ".join(f".{p['type']} {p['name']}" for p in parameters)
        raise ValueError(
            f"emulate: {entry['name']} takes {len(parameters)} arguments ({listed}), "
            f"got {len(arguments)}"
        )
    block = bytearray(entry["parameter_bytes"])
    spans: list[tuple[int, int, bool]] = []
    for index, (parameter, argument) in enumerate(zip(parameters, arguments)):
        where = f"argument {index} ({parameter['name']})"
        value = _pack(argument, parameter, where, spans)
        if len(value) != parameter["bytes"]:
            raise ValueError(
                f"emulate: {where} must have {parameter['bytes']} bytes, as .{parameter['type']} "
                f"of the kernel's, got {len(value)} from {_kind(argument)}"
            )
        block[parameter["offset"] : parameter["offset"] + len(value)] = value
    return bytes(block), spans


def _pack(
    argument: Any, parameter: dict[str, Any], where: str, spans: list[tuple[int, int, bool]]
) -> bytes:
    if argument is None:
        return bytes(8)
    if isinstance(argument, (bytes, bytearray, memoryview)):
        return bytes(argument)
    if isinstance(argument, TensorMap):
        spans.append(_span(argument.array, where)[1])
        return argument.words
    if isinstance(argument, (bool, int, float)):
        return _pack_number(argument, parameter, where)
    if _is_numpy_scalar(argument):
        return argument.tobytes()
    address, span = _span(argument, where)
    if parameter["bytes"] != 8:
        raise TypeError(
            f"emulate: {where} is a .{parameter['type']} of {parameter['bytes']} bytes, no "
            f"pointer; got {_kind(argument)}"
        )
    spans.append(span)
    return struct.pack("<Q", address)


def _pack_number(number: float, parameter: dict[str, Any], where: str) -> bytes:
    kind, size = parameter["type"], parameter["bytes"]
    if parameter["is_struct"]:
        raise TypeError(f"emulate: {where} is a struct of {size} bytes; pass bytes")
    try:
        if kind in _REAL:
            return struct.pack("<" + _REAL[kind], number)
        if isinstance(number, int):
            code = _WHOLE[size]
            return struct.pack("<" + (code if number >= 0 else code.lower()), number)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"emulate: {where}: {number} does not fit .{kind}") from error
    raise TypeError(f"emulate: {where} is a .{kind}; pass a whole number or a NumPy scalar")


def _is_numpy_scalar(value: Any) -> bool:
    return any(
        base.__name__ == "generic" and base.__module__ == "numpy" for base in type(value).__mro__
    )


def _span(array: Any, where: str) -> tuple[int, tuple[int, int, bool]]:
    """The address of an array's first element, and the memory from its lowest to its highest."""
    if hasattr(array, "__array_interface__"):
        facts = array.__array_interface__
        address, is_read_only = facts["data"]
        shape, strides, size = array.shape, array.strides, array.itemsize
        if facts["typestr"][1] == "O":
            raise TypeError(
                f"emulate: {where} is an array of Python objects; give it a dtype of numbers"
            )
    elif hasattr(array, "data_ptr") and str(getattr(array, "device", "")) == "cpu":
        address, is_read_only = array.data_ptr(), False
        size = array.element_size()
        shape, strides = tuple(array.shape), [step * size for step in array.stride()]
    else:
        raise TypeError(
            f"emulate: {where} must be a NumPy array, a CPU PyTorch tensor, a number, bytes or "
            f"None, got {_kind(array)}"
        )
    if 0 in shape:
        return address, (address, 0, not is_read_only)
    reaches = [(extent - 1) * step for extent, step in zip(shape, strides)]
    first = address + sum(reach for reach in reaches if reach < 0)
    last = address + sum(reach for reach in reaches if reach > 0) + size
    return address, (first, last - first, not is_read_only)


def _traced(trace: tuple[int, int] | None, blocks: int, threads: int) -> tuple[int, int]:
    if trace is None:
        return -1, -1
    block, thread = map(int, trace)
    if not (0 <= block < blocks and 0 <= thread < threads):
        raise ValueError(
            f"emulate: trace must name a block below {blocks} and a thread below {threads}, "
            f"got {block}:{thread}"
        )
    return block, thread


def _shape(name: str, shape: Shape) -> list[int]:
    sizes = [shape] if isinstance(shape, int) else list(shape)
    if not 1 <= len(sizes) <= 3 or not all(
        isinstance(size, int) and 1 <= size < 2**31 for size in sizes
    ):
        raise ValueError(f"emulate: {name} must be 1 to 3 positive whole numbers, got {shape!r}")
    return sizes + [1] * (3 - len(sizes))


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
