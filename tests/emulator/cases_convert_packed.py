"""cvt of pairs, 8-bit formats, cvt.pack; cvt's registers of other widths, and its NaNs."""

import numpy as np
from cases_convert import INTEGER_BITS, RANDOM, clamp, integers, quieted, reals, signed_value
from instruction import Case
from rounding import FORMATS, STORED, narrow, widen


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
    *two_source_cases(),
    *eight_bit_cases(),
    *pack_cases(),
    *register_cases(),
    *nan_cases(),
]
