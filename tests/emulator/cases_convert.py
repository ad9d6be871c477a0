"""cvt between single numbers of all types in all roundings."""

import math

import numpy as np
from instruction import Case
from rounding import STORED, array, flush, narrow, round_magnitude, to_integer, widen

RANDOM = np.random.default_rng(21)
INTEGER_BITS = {"8": np.uint8, "16": np.uint16, "32": np.uint32, "64": np.uint64}
INTEGER_TYPES = [sign + bits for bits in INTEGER_BITS for sign in "us"]
MODES = ("rn", "rz", "rm", "rp")


def integers(bits, count=96):
    """Borders of every integer type, small numbers, and random ones of all lengths."""
    borders = [s + d for k in (0, 7, 8, 15, 16, 31, 32, 63) for s in (1 << k, -(1 << k))
               for d in (-1, 0, 1)]  # fmt: skip
    halves = [(1 << 24) + 1, (1 << 24) + 3, (1 << 53) + 1, (1 << 11) + 1, 65519, 65520, 257, 259]
    values = borders + halves
    lengths = RANDOM.integers(1, 64, count - len(values))
    values += [int(RANDOM.integers(0, 1 << 62)) >> int(62 - min(n, 62)) for n in lengths]
    return np.array([v & ((1 << bits) - 1) for v in values], INTEGER_BITS[str(bits)])


def reals(kind, count=256):
    """Special values, ties of the narrower formats, borders of the integers, and random bits."""
    special = [0.0, 1.0, 0.5, 1.5, 2.5, 3.5, 0.49999997, 127.5, 128.0, 255.5, 256.0, 32767.5,
               32768.0, 65535.5, 65504.0, 65519.9, 65520.0, 2147483520.0, 2147483648.0,
               4294967040.0, 4294967296.0, 9.2233715e18, 9.2233720e18, 1.8446744e19, 1e30,
               448.0, 464.0, 464.1, 480.0, 57344.0, 61440.0, 61441.0, 1e-3, 2.0**-9, 2.0**-10,
               1.5 * 2.0**-10, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25, 2.0**-26, 2.0**-133,
               2.0**-134, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11,
               1.0625, 1.1875, 1.125, 1.375, 3.38953e38, 3.4e38, 1e-40, 1e-45, math.inf,
               math.nan]  # fmt: skip
    values = [sign * v for v in special for sign in (1, -1)]
    bits = [narrow(v, kind) for v in values]
    size = STORED[kind]().itemsize * 8
    bits += [int(b) for b in RANDOM.integers(0, 1 << size, count - len(bits), dtype=np.uint64)]
    return np.array(bits[:count], STORED[kind])


def quieted(bits, kind):
    """NaN inputs replaced by one quiet NaN."""
    return array(lambda b: narrow(math.nan, kind) if math.isnan(widen(b, kind)) else int(b), bits,
                 bits.dtype)  # fmt: skip


def numbers(kind):
    """reals() of a type whose NaNs have cases of their own."""
    bits = reals(kind)
    isnan = np.array([math.isnan(widen(b, kind)) for b in bits])
    return np.where(isnan, STORED[kind](0), bits)


def signed_value(value, kind):
    bits = int(kind[1:])
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def clamp(value, kind):
    bits = int(kind[1:])
    least, most = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    )
    return min(max(value, least), most)


def integer_cases():
    for source in INTEGER_TYPES:
        values = integers(int(source[1:]))
        # A narrow value's register has 16 bits.
        meant = [signed_value(v, source) for v in values]
        for to in INTEGER_TYPES:
            if to == source:
                continue
            bits = max(16, int(to[1:]))
            dtype, mask = INTEGER_BITS[str(bits)], (1 << bits) - 1
            wrapped = [signed_value(v, to) & mask for v in meant]
            held = [clamp(v, to) & mask for v in meant]
            # .sat is refused where every value fits.
            narrower = held != wrapped
            yield Case(
                f"cvt.{to}.{source}",
                f"cvt.{to}.{source} %o0, %i0;"
                + (f"cvt.sat.{to}.{source} %o1, %i0;" if narrower else ""),
                [values],
                [f"b{bits}"] * (1 + narrower),
                [np.array(wrapped, dtype), np.array(held, dtype)][: 1 + narrower],
                threads=len(values),
            )


def integer_to_real_cases():
    for source in INTEGER_TYPES:
        values = integers(int(source[1:]))
        meant = [signed_value(v, source) for v in values]
        for to in ("f16", "bf16", "f32", "f64"):
            if to == "bf16" and source[1:] == "8":
                continue
            lines, outputs, expected = [], [], []
            for mode in MODES:
                lines.append(f"cvt.{mode}.{to}.{source} %o{len(outputs)}, %i0;")
                outputs.append(f"b{STORED[to]().itemsize * 8}")
                expected.append(array(lambda v, t=to, m=mode: narrow(v, t, m), meant, STORED[to]))
            yield Case(
                f"cvt.{to}.{source}",
                " ".join(lines),
                [values],
                outputs,
                expected,
                threads=len(values),
                target="sm_90" if to == "bf16" else "sm_80",
            )


def real_to_integer_cases():
    for source in ("f16", "bf16", "f32", "f64"):
        bits = reals(source)
        for to in INTEGER_TYPES:
            width, size = int(to[1:]), max(16, int(to[1:]))
            if source == "bf16" and width == 8:
                continue
            lines, outputs, expected = [], [], []
            for mode in MODES:
                lines.append(f"cvt.{mode}i.{to}.{source} %o{len(outputs)}, %i0;")
                outputs.append(f"b{size}")
                wide = source == "f64" or width == 64

                def convert(b, mode=mode, wide=wide, width=width, size=size, to=to, source=source):
                    whole = to_integer(widen(b, source), None, mode, width, to[0] == "s", wide)
                    return signed_value(whole, to) & ((1 << size) - 1)

                expected.append(array(convert, bits, INTEGER_BITS[str(size)]))
            yield Case(
                f"cvt.{to}.{source}",
                " ".join(lines),
                [bits],
                outputs,
                expected,
                threads=len(bits),
                target="sm_90" if source == "bf16" else "sm_80",
            )


def real_case(name, body, bits, to, functions, **options):
    """functions: of a source's bits to the result's bits, one an output."""
    size = 32 if to == "tf32" else STORED[to]().itemsize * 8
    return Case(
        name,
        body,
        [bits],
        [f"b{size}"] * len(functions),
        [array(f, bits, STORED[to]) for f in functions],
        threads=len(bits),
        **options,
    )


def narrowing_cases():
    pairs = [("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64"), ("bf16", "f64"),
             ("bf16", "f16"), ("f16", "bf16")]  # fmt: skip
    for to, source in pairs:
        modes = ("rn", "rz") if (to, source) == ("bf16", "f32") else MODES
        newer = "bf16" in (to, source) and (to, source) != ("bf16", "f32")
        yield real_case(
            f"cvt.{to}.{source}",
            " ".join(f"cvt.{m}.{to}.{source} %o{i}, %i0;" for i, m in enumerate(modes)),
            numbers(source),
            to,
            [lambda b, m=m, t=to, s=source: narrow(widen(b, s), t, m) for m in modes],
            target="sm_90" if newer else "sm_80",
        )
    for to in ("f16", "bf16"):
        yield real_case(
            f"cvt.relu.{to}.f32",
            f"cvt.rn.relu.{to}.f32 %o0, %i0; cvt.rz.relu.{to}.f32 %o1, %i0;",
            reals("f32"),
            to,
            [lambda b, m=m, t=to: narrow(widen(b, "f32"), t, m, relu=True) for m in ("rn", "rz")],
        )
        yield real_case(
            f"cvt.satfinite.{to}.f32",
            f"cvt.rn.satfinite.{to}.f32 %o0, %i0; cvt.rn.relu.satfinite.{to}.f32 %o1, %i0;",
            reals("f32"),
            to,
            [
                lambda b, r=r, t=to: narrow(widen(b, "f32"), t, satfinite=True, relu=r)
                for r in (False, True)
            ],
            version="8.1",
        )
    yield real_case(
        "cvt.rna.tf32.f32", "cvt.rna.tf32.f32 %o0, %i0;", reals("f32"), "tf32",
        [lambda b: narrow(widen(b, "f32"), "tf32", "rna")],
    )  # fmt: skip
    yield real_case(
        "cvt.tf32.f32",
        "cvt.rn.tf32.f32 %o0, %i0; cvt.rz.tf32.f32 %o1, %i0; cvt.rn.relu.tf32.f32 %o2, %i0;"
        "cvt.rz.relu.tf32.f32 %o3, %i0;",
        reals("f32"),
        "tf32",
        [
            lambda b, m=m, r=r: narrow(widen(b, "f32"), "tf32", m, relu=r)
            for r in (False, True)
            for m in ("rn", "rz")
        ],
        target="sm_90",
    )


def widening_cases():
    """NaNs are compared as numbers: their bits are in cases of their own."""
    for to, source in (("f32", "f16"), ("f64", "f16"), ("f64", "f32"), ("f32", "bf16"),
                       ("f64", "bf16")):  # fmt: skip
        bits = reals(source)
        dtype = np.float32 if to == "f32" else np.float64
        yield Case(
            f"cvt.{to}.{source}",
            f"cvt.{to}.{source} %o0, %i0;",
            [bits],
            [to],
            [array(lambda b, s=source: widen(b, s), bits, dtype)],
            threads=len(bits),
            target="sm_90" if source == "bf16" else "sm_80",
        )


def flushing_cases():
    bits = reals("f32")

    def flushed(b):
        return widen(int(flush(b)), "f32")

    # An H200 rounds subnormals up here, in spite of .ftz.
    yield real_case(
        "cvt.ftz to f16",
        "cvt.rn.ftz.f16.f32 %o0, %i0; cvt.rp.ftz.f16.f32 %o1, %i0;",
        bits,
        "f16",
        [lambda b, m=m: narrow(widen(b, "f32"), "f16", m) for m in ("rn", "rp")],
    )
    yield real_case(
        "cvt.ftz to integers", "cvt.rpi.ftz.s32.f32 %o0, %i0; cvt.rmi.ftz.s32.f32 %o1, %i0;",
        bits, "f32",
        [lambda b, m=m: to_integer(flushed(b), None, m, 32, True, False) for m in ("rp", "rm")],
    )  # fmt: skip
    yield real_case(
        "cvt.ftz.f32.f64",
        "cvt.rn.ftz.f32.f64 %o0, %i0;",
        numbers("f64"),
        "f32",
        [lambda b: int(flush(narrow(widen(b, "f64"), "f32")))],
    )
    yield Case(
        "cvt.ftz.f64.f32",
        "cvt.ftz.f64.f32 %o0, %i0;",
        [bits],
        ["f64"],
        [array(flushed, bits, np.float64)],
        threads=len(bits),
    )


def integral(value, mode):
    if math.isnan(value) or math.isinf(value):
        return value
    return math.copysign(round_magnitude(abs(value), value < 0, mode), value)


def integral_cases():
    """Rounding to a whole number that stays floating-point; .sat."""
    for kind in ("f16", "f32", "f64"):
        bits = reals(kind)
        dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
        yield Case(
            f"cvt.rni.{kind}.{kind}",
            " ".join(f"cvt.{m}i.{kind}.{kind} %o{i}, %i0;" for i, m in enumerate(MODES)),
            [bits],
            [kind] * 4,
            [array(lambda b, m=m, k=kind: integral(widen(b, k), m), bits, dtype) for m in MODES],
            threads=len(bits),
        )

    def held(value):
        return 0.0 if not value > 0 else min(value, 1.0)

    yield real_case(
        "cvt.sat.f32.f32",
        "cvt.sat.f32.f32 %o0, %i0; cvt.rni.sat.f32.f32 %o1, %i0; cvt.ftz.sat.f32.f32 %o2, %i0;",
        reals("f32"),
        "f32",
        [
            lambda b: narrow(held(widen(b, "f32")), "f32"),
            lambda b: narrow(held(integral(widen(b, "f32"), "rn")), "f32"),
            lambda b: narrow(held(widen(int(flush(b)), "f32")), "f32"),
        ],
    )
    yield real_case(
        "cvt.rn.sat.f16.f32",
        "cvt.rn.sat.f16.f32 %o0, %i0;",
        reals("f32"),
        "f16",
        [lambda b: narrow(held(widen(b, "f32")), "f16")],
    )


CASES = [
    *integer_cases(),
    *integer_to_real_cases(),
    *real_to_integer_cases(),
    *narrowing_cases(),
    *widening_cases(),
    *flushing_cases(),
    *integral_cases(),
]
