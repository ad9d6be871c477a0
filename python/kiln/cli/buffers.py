"""Kernel arguments from text: "f32[1024]=random", "i32=5", "in.npy:out.npy"."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

from ..files import check_target
from .output import Unavailable

SPEC_HELP = """\
SPEC, one for each parameter of the kernel, in order:
  f32[1024]=random   a buffer: random (floats from -1 to 1, integers of their whole range), zeros,
  f16[64,128]=iota   ones, iota (0, 1, 2, ...) or a number; of f16, bf16, f32, f64, u8..u64, s8..s64
  i32=5              a scalar, passed by value
  x.npy              a NumPy file of numbers; x.npy:y.npy writes the buffer to y.npy afterwards
  hex=00ff12         bytes of a struct, passed by value
  null               a null pointer
"""

_KINDS = {"u": "uint", "s": "int", "i": "int", "b": "uint", "f": "float"}
_SIZES = {"float": (16, 32, 64), "uint": (8, 16, 32, 64), "int": (8, 16, 32, 64)}
_MOST_BYTES = 2**47  # of a process
_MOST_BF16 = (2 - 2**-7) * 2.0**127
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
            with open(self.out, "wb") as file:  # by its name, numpy.save would append .npy to it
                _numpy().save(file, self.value)

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
            "mean": _mean(sound) if has_values else None,
            "nan": int(values.size - sound.size),
            "first": [number(value) for value in values[:4]] if has_values else [],
        }


def _mean(values: Any) -> float:
    with _numpy().errstate(all="ignore"):  # infinities of both signs have none
        return float(values.mean(dtype="float64"))


def parse_argument(text: str, index: int) -> Scalar | Buffer:
    """The argument that a SPEC stands for. Raises ValueError."""
    numpy = _numpy()
    if text == "null":
        return Scalar(None)
    if text.startswith("hex="):
        return Scalar(_from_hex(text))
    if match := _BUFFER.fullmatch(text):
        kind, shape, fill = match[1], [int(n) for n in re.split("[,x]", match[2])], match[3]
        with _enough_memory(text):
            # NumPy has a message of its own for sizes that no address space holds.
            if math.prod(shape) * numpy.dtype(_dtype(kind)).itemsize >= _MOST_BYTES:
                raise MemoryError
            return Buffer(index, kind, _filled(kind, shape, fill, index))
    if match := _SCALAR.fullmatch(text):
        value = _value(match[2], match[1])
        return Scalar(_to_bf16(numpy.array([value]))[0] if match[1] == "bf16" else value)
    source, colon, out = text.partition(":")
    if not source.endswith(".npy") or (colon and not out):
        raise ValueError(
            f"--arg {text}: must be TYPE[N]=random|zeros|ones|iota|NUMBER, TYPE=NUMBER, "
            "FILE.npy[:OUT.npy], hex=DIGITS or null"
        )
    if out:
        check_target(f"--arg {text}:", out)
    with _enough_memory(text):
        array = _loaded(source)
        return Buffer(index, str(array.dtype), array, out)


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text[4:])
    except ValueError:
        raise ValueError(f"--arg {text}: must be pairs of hex digits, such as hex=00ff12") from None


def _loaded(path: str) -> Any:
    """The numbers of a NumPy file, in the byte order of the device."""
    numpy = _numpy()
    with open(path, "rb") as file:
        try:
            array = numpy.lib.format.read_array(file, allow_pickle=False)
        except (ArithmeticError, EOFError, SyntaxError, TypeError, ValueError) as error:
            if "Object arrays" in str(error):
                raise _no_numbers(path, "Python objects") from None
            raise ValueError(f"{path} is no NumPy file, or is cut off: {error}") from None
    if array.dtype.kind not in "biufcV":
        raise _no_numbers(path, str(array.dtype))
    return numpy.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _no_numbers(path: str, found: str) -> ValueError:
    return ValueError(f"{path} holds {found}; a buffer takes an array of numbers")


@contextlib.contextmanager
def _enough_memory(text: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise Unavailable(
            f"--arg {text}: the buffer does not fit in this machine's memory; give a smaller one"
        ) from None


def _filled(kind: str, shape: list[int], fill: str, index: int) -> Any:
    numpy, dtype = _numpy(), _dtype(kind)
    count = math.prod(shape)
    if fill == "random":
        generator = numpy.random.default_rng(index)  # the same numbers every time
        if dtype.startswith("float"):
            flat = generator.uniform(-1, 1, count)
        else:
            limits = numpy.iinfo(dtype)
            flat = generator.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    elif fill == "iota":
        if dtype.startswith("float"):
            _value(str(count - 1), kind)  # that the last one fits
        flat = numpy.arange(count)
    else:
        flat = numpy.full(count, _value({"zeros": "0", "ones": "1"}.get(fill, fill), kind))
    array = flat.astype(dtype).reshape(shape)  # iota of integers wraps around behind the largest
    return _to_bf16(array) if kind == "bf16" else array


def _dtype(kind: str) -> str:
    if kind == "bf16":
        return "float32"  # whose numbers _to_bf16 shortens
    match = re.fullmatch(r"([usibf])(\d+)", kind)
    if match is not None:
        name = _KINDS[match[1]]
        if int(match[2]) in _SIZES[name]:
            return name + match[2]
    raise ValueError(f"--arg: unknown type {kind!r}; types are f16, bf16, f32, f64, u8..s64")


def _value(text: str, kind: str) -> Any:
    """The number that a text stands for, as a NumPy scalar; ValueError if it does not fit."""
    numpy, dtype = _numpy(), _dtype(kind)
    number: float | int
    limits: tuple[float, float]
    try:
        if dtype.startswith("float"):
            largest = _MOST_BF16 if kind == "bf16" else float(numpy.finfo(dtype).max)
            number, limits = float(text), (-largest, largest)
        else:
            number, limits = int(text, 0), (numpy.iinfo(dtype).min, numpy.iinfo(dtype).max)
    except ValueError:
        raise ValueError(f"--arg: {text!r} is not a value of {kind}") from None
    # Infinities and NaN may be asked for, in letters.
    if not (limits[0] <= number <= limits[1] or re.search("inf|nan", text.lower())):
        raise ValueError(f"--arg: {text} does not fit {kind}")
    return numpy.dtype(dtype).type(number)


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
