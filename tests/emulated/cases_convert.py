"""cvt between all types in all roundings, packed conversions, cvt.pack."""

import math

import numpy as np
from instruction import Case
from rounding import FORMATS, STORED, array, flush, narrow, round_magnitude, to_integer, widen

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


def two_source_cases():
    a, b = reals("f32"), RANDOM.permutation(reals("f32"))

    def both(kind, **how):
        size = STORED[kind]().itemsize * 8
        values = [
            narrow(widen(x, "f32"), kind, **how) << size | narrow(widen(y, "f32"), kind, **how)
            for x, y in zip(a, b)
        ]
        return np.array(values, INTEGER_BITS[str(2 * size)])

    def case(name, kind, lines, hows, **options):
        size = 2 * STORED[kind]().itemsize * 8
        body = " ".join(f"cvt.{line} %o{i}, %i0, %i1;" for i, line in enumerate(lines))
        expected = [both(kind, **how) for how in hows]
        return Case(name, body, [a, b], [f"b{size}"] * len(lines), expected, threads=len(a),
                    **options)  # fmt: skip

    for kind in ("f16", "bf16"):
        yield case(
            f"cvt.{kind}x2.f32",
            kind,
            [f"{m}{relu}.{kind}x2.f32" for m in ("rn", "rz") for relu in ("", ".relu")],
            [{"mode": m, "relu": r} for m in ("rn", "rz") for r in (False, True)],
        )
        yield case(
            f"cvt.satfinite.{kind}x2.f32",
            kind,
            [f"rn.satfinite.{kind}x2.f32", f"rz.relu.satfinite.{kind}x2.f32"],
            [{"satfinite": True}, {"mode": "rz", "relu": True, "satfinite": True}],
            version="8.1",
        )
    for kind in ("e4m3", "e5m2"):
        yield case(
            f"cvt.{kind}x2.f32",
            kind,
            [f"rn.satfinite.{kind}x2.f32", f"rn.satfinite.relu.{kind}x2.f32"],
            [{"satfinite": True}, {"satfinite": True, "relu": True}],
            target="sm_90",
        )


def eight_bit_cases():
    halves = quieted(reals("f16", 256), "f16")
    other = RANDOM.permutation(halves)
    packed = halves.astype(np.uint32) | other.astype(np.uint32) << np.uint32(16)
    every = np.arange(256, dtype=np.uint16)
    pairs = every | (every[::-1] << np.uint16(8))
    for kind in ("e4m3", "e5m2"):
        yield Case(
            f"cvt.{kind}x2.f16x2",
            f"cvt.rn.satfinite.{kind}x2.f16x2 %o0, %i0;"
            f"cvt.rn.satfinite.relu.{kind}x2.f16x2 %o1, %i0;",
            [packed],
            ["b16", "b16"],
            [
                np.array(
                    [
                        narrow(widen(y, "f16"), kind, satfinite=True, relu=r) << 8
                        | narrow(widen(x, "f16"), kind, satfinite=True, relu=r)
                        for x, y in zip(halves, other)
                    ],
                    np.uint16,
                )
                for r in (False, True)
            ],
            threads=len(packed),
            target="sm_90",
        )
        yield Case(
            f"cvt.f16x2.{kind}x2",
            f"cvt.rn.f16x2.{kind}x2 %o0, %i0; cvt.rn.relu.f16x2.{kind}x2 %o1, %i0;",
            [pairs],
            ["b32", "b32"],
            [
                np.array(
                    [
                        narrow(widen(p >> 8, kind), "f16", relu=r) << 16
                        | narrow(widen(p & 255, kind), "f16", relu=r)
                        for p in map(int, pairs)
                    ],
                    np.uint32,
                )
                for r in (False, True)
            ],
            threads=len(pairs),
            target="sm_90",
        )


def pack_cases():
    a, b = integers(32), RANDOM.permutation(integers(32))
    c = RANDOM.integers(0, 1 << 32, len(a), dtype=np.uint32)
    for kind in ("u16", "s16", "u8", "s8"):
        bits = int(kind[1:])
        high, low = (
            np.array(
                [clamp(signed_value(v, "s32"), kind) & ((1 << bits) - 1) for v in x], np.uint32
            )
            for x in (a, b)
        )
        joined = high << np.uint32(bits) | low
        above = np.uint32(0) if bits == 16 else c << np.uint32(2 * bits)
        suffix, third = ("", "") if bits == 16 else (".b32", ", %i2")
        yield Case(
            f"cvt.pack.sat.{kind}",
            f"cvt.pack.sat.{kind}.s32{suffix} %o0, %i0, %i1{third};",
            [a, b, c],
            ["b32"],
            [joined | above],
            threads=len(a),
        )


def register_cases():
    """Registers that are wider than the instruction's type."""
    words = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
    longs = RANDOM.integers(0, 1 << 64, 32, dtype=np.uint64)
    signed = words.astype(np.uint8).view(np.int8)
    short = words.astype(np.uint16).view(np.int16)
    yield Case(
        "cvt with wide registers",
        """cvt.s8.s32 %o0, %i0; cvt.u8.u32 %o1, %i0; cvt.s16.s32 %o2, %i0; cvt.u32.u8 %o3, %i0;
        cvt.s32.s8 %o4, %i0; cvt.s8.s64 %o5, %i1; cvt.u16.u64 %o6, %i1; cvt.rn.f32.s16 %o7, %i0;
        cvt.u64.u32 %o8, %i1;""",
        [words, longs],
        ["s32", "u32", "s32", "u32", "s32", "s64", "u64", "f32", "u64"],
        [
            signed.astype(np.int32),
            words & np.uint32(255),
            short.astype(np.int32),
            words & np.uint32(255),
            signed.astype(np.int32),
            longs.astype(np.uint8).view(np.int8).astype(np.int64),
            longs & np.uint64(0xFFFF),
            short.astype(np.float32),
            longs & np.uint64(0xFFFFFFFF),
        ],
    )
    yield Case(
        "cvt guarded",
        "mov.b32 %o0, 7; @%i1 cvt.rn.f32.s32 %o0, %i0; mov.b64 %o1, 1; @!%i1 cvt.s64.s32 %o1, %i0;",
        [words.view(np.int32), words % 2 == 0],
        ["b32", "s64"],
        [
            np.where(words % 2, 7, words.view(np.int32).astype(np.float32).view(np.uint32)),
            np.where(words % 2, words.view(np.int32), 1).astype(np.int64),
        ],
    )


NANS = {
    "f16": [0x7C01, 0x7E00, 0xFE00, 0xFFFF, 0x7DFF, 0x7FFF, 0xFC01, 0x7E55],
    "bf16": [0x7F81, 0x7FC0, 0xFFC0, 0xFFFF, 0x7FAB, 0x7FFF, 0xFF81, 0x7FC1],
    "f32": [0x7F800001, 0x7FC00000, 0xFFC00000, 0xFFFFFFFF, 0x7FAAAAAA, 0x7FFFFFFF, 0xFF800001,
            0x7FC12345],
    "f64": [0x7FF0000000000001, 0x7FF8000000000000, 0xFFF8000000000000, 0xFFFFFFFFFFFFFFFF,
            0x7FF5555555555555, 0x7FFFFFFFFFFFFFFF, 0xFFF0000000000001, 0x7FF8123456789ABC],
}  # fmt: skip


def moved(bits, source, to):
    """Sign and payload kept, quiet: what the units for f64 do."""
    exponent_bits, mantissa_bits, _ = FORMATS[to]
    source_exponent_bits, source_mantissa_bits, _ = FORMATS[source]
    sign = bits >> (source_exponent_bits + source_mantissa_bits) & 1
    payload = bits & ((1 << source_mantissa_bits) - 1)
    shift = mantissa_bits - source_mantissa_bits
    payload = payload << shift if shift >= 0 else payload >> -shift
    top = (sign << exponent_bits | ((1 << exponent_bits) - 1)) << mantissa_bits
    return top | payload | 1 << (mantissa_bits - 1)


def nan_cases():
    """The bits of NaNs, as an H200 gives them."""
    conversions = [("f32", "f16", ""), ("f64", "f16", ""), ("f64", "f32", ""), ("f32", "bf16", ""),
                   ("f64", "bf16", ""), ("f32", "f32", "rni."), ("f16", "f16", "rni."),
                   ("f64", "f64", "rni."), ("f32", "f64", "rn."), ("f16", "f64", "rn."),
                   ("bf16", "f64", "rn."), ("f32", "f32", "ftz."), ("f32", "f16", "ftz."),
                   ("f32", "f64", "rz.ftz.")]  # fmt: skip
    for to, source, modifiers in conversions:
        bits = np.array(NANS[source] * 4, STORED[source])
        if "f64" in (to, source):
            want = [moved(int(b), source, to) for b in bits]
        elif source == "bf16":
            want = [int(b) << 16 for b in bits]
        else:
            want = [FORMATS[to][2]] * len(bits)
        yield Case(
            f"NaN bits of cvt.{modifiers}{to}.{source}",
            f"cvt.{modifiers}{to}.{source} %o0, %i0;",
            [bits],
            [f"b{STORED[to]().itemsize * 8}"],
            [np.array(want, STORED[to])],
            target="sm_90" if "bf16" in (to, source) else "sm_80",
        )


CASES = [
    *integer_cases(),
    *integer_to_real_cases(),
    *real_to_integer_cases(),
    *narrowing_cases(),
    *widening_cases(),
    *flushing_cases(),
    *integral_cases(),
    *two_source_cases(),
    *eight_bit_cases(),
    *pack_cases(),
    *register_cases(),
    *nan_cases(),
]
