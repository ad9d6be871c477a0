"""Kernel arguments from text: "f32[1024]=random", "i32=5", "in.npy:out.npy"."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

from .output import Unavailable

SPEC_HELP = """\
SPEC, one for each parameter of the kernel, in order:
  f32[1024]=random   a buffer: random (floats from -1 to 1, integers of their whole range), zeros,
  f16[64,128]=iota   ones, iota (0, 1, 2, ...) or a number; of f16, bf16, f32, f64, u8..u64, s8..s64
  i32=5              a scalar, passed by value
  x.npy              a NumPy file; x.npy:y.npy writes the buffer to y.npy afterwards
  hex=00ff12         bytes of a struct, passed by value
  null               a null pointer
"""

_KINDS = {"u": "uint", "s": "int", "i": "int", "b": "uint", "f": "float"}
_SIZES = {"float": (16, 32, 64), "uint": (8, 16, 32, 64), "int": (8, 16, 32, 64)}
_MOST_BYTES = 2**47  # of a process
_BUFFER = re.compile(r"(\w+)\[(\d+(?:[,x]\d+)*)\]=(.+)")
_SCALAR = re.compile(r"(\w+)=(.+)")


class Scalar:
    """An argument passed by value; None is a null pointer."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Buffer:
    """An argument in memory."""

    def __init__(self, index: int, type_name: str, array: Any, out: str = "") -> None:
        self.index = index
        self.type_name = type_name
        self.value = array
        self.before = array.copy()
        self.out = out

    def save(self) -> None:
        """Writes the buffer to the requested file."""
        if self.out:
            _numpy().save(self.out, self.value)

    def summary(self) -> dict[str, Any]:
        """Describes the buffer's present contents."""
        numpy = _numpy()
        # Bits are compared, so that a NaN that stays does not count as a change.
        flat, before = (numpy.ascontiguousarray(x).reshape(-1) for x in (self.value, self.before))
        bits = f"u{flat.itemsize}" if flat.itemsize in (1, 2, 4, 8) else flat.dtype
        values = _from_bf16(flat) if self.type_name == "bf16" else flat
        is_real = values.dtype.kind == "f"
        sound = values[~numpy.isnan(values)] if is_real else values
        number = float if is_real else int
        has_values = sound.size > 0 and values.dtype.kind in "fiub"
        return {
            "argument": self.index,
            "type": self.type_name,
            "shape": list(self.value.shape),
            "changed": int((flat.view(bits) != before.view(bits)).sum()),
            "min": number(sound.min()) if has_values else None,
            "max": number(sound.max()) if has_values else None,
            "mean": float(sound.mean(dtype="float64")) if has_values else None,
            "nan": int(values.size - sound.size),
            "first": [number(value) for value in values[:4]] if has_values else [],
        }


def parse_argument(text: str, index: int) -> Scalar | Buffer:
    """The argument that a SPEC stands for. Raises ValueError."""
    numpy = _numpy()
    if text == "null":
        return Scalar(None)
    if text.startswith("hex="):
        return Scalar(bytes.fromhex(text[4:]))
    if match := _BUFFER.fullmatch(text):
        kind, shape, fill = match[1], [int(n) for n in re.split("[,x]", match[2])], match[3]
        dtype = "float32" if kind == "bf16" else _dtype(kind)
        with _enough_memory(text):
            # NumPy has a message of its own for sizes that no address space holds.
            if math.prod(shape) * numpy.dtype(dtype).itemsize >= _MOST_BYTES:
                raise MemoryError
            return Buffer(index, kind, _filled(kind, dtype, shape, fill, index))
    if match := _SCALAR.fullmatch(text):
        if match[1] == "bf16":
            return Scalar(_to_bf16(numpy.array([_number(match[2], "float32")]))[0])
        dtype = _dtype(match[1])
        return Scalar(_as(dtype, [_number(match[2], dtype)])[0])
    source, _, out = text.partition(":")
    if not source.endswith(".npy"):
        raise ValueError(
            f"--arg {text}: must be TYPE[N]=random|zeros|ones|iota|NUMBER, TYPE=NUMBER, "
            "FILE.npy[:OUT.npy] or null"
        )
    array = numpy.ascontiguousarray(numpy.load(source))
    return Buffer(index, str(array.dtype), array, out)


@contextlib.contextmanager
def _enough_memory(text: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise Unavailable(
            f"--arg {text}: the buffer does not fit in this machine's memory; give a smaller one"
        ) from None


def _filled(kind: str, dtype: str, shape: list[int], fill: str, index: int) -> Any:
    numpy = _numpy()
    count = math.prod(shape)
    if fill == "random":
        generator = numpy.random.default_rng(index)  # the same numbers every time
        if dtype.startswith("float"):
            flat = generator.uniform(-1, 1, count)
        else:
            limits = numpy.iinfo(dtype)
            flat = generator.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    elif fill == "iota":
        flat = numpy.arange(count)
    else:
        known = {"zeros": 0, "ones": 1}
        flat = numpy.full(count, known[fill] if fill in known else _number(fill, dtype))
    array = flat.astype(dtype).reshape(shape)  # iota wraps around at the end of the type's range
    return _to_bf16(array) if kind == "bf16" else array


def _dtype(kind: str) -> str:
    match = re.fullmatch(r"([usibf])(\d+)", kind)
    if match is not None:
        name = _KINDS[match[1]]
        if int(match[2]) in _SIZES[name]:
            return name + match[2]
    raise ValueError(f"--arg: unknown type {kind!r}; types are f16, bf16, f32, f64, u8..s64")


def _number(text: str, dtype: str) -> float | int:
    try:
        return float(text) if dtype.startswith("float") else int(text, 0)
    except ValueError:
        raise ValueError(f"--arg: {text!r} is not a value of {dtype}") from None


def _as(dtype: str, values: list[float | int]) -> Any:
    try:
        return _numpy().array(values, dtype=dtype)
    except OverflowError:
        raise ValueError(f"--arg: {values[0]} does not fit {dtype}") from None


# NumPy has no bfloat16, so its bits are stored, rounded to nearest even.
def _to_bf16(array: Any) -> Any:
    bits = array.astype("float32").view("uint32").astype("uint64")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")


def _from_bf16(bits: Any) -> Any:
    return (bits.astype("uint32") << 16).view("float32")


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ValueError("kiln emulate needs NumPy: pip install numpy") from None
    return numpy
