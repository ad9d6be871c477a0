"""setp and set: every comparison of every type; logic of predicates."""

import numpy as np
from instruction import Case
from rounding import flush

INTEGERS = {
    np.uint16: [0, 1, 2, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF],
    np.uint32: [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF],
    np.uint64: [0, 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1],
}
SIGNED = {2: np.int16, 4: np.int32, 8: np.int64}
REALS = [0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, np.inf, -np.inf, np.nan, 2.5]
PREDICATES = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def pairs(values, dtype):
    """Every value with every value."""
    values = np.array(values, dtype)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def comparisons(kind):
    """The names that compare a type, each with its function of NumPy arrays."""
    if kind[0] == "b" and not kind.startswith("bf"):
        return {name: PREDICATES[name] for name in ("eq", "ne")}
    if kind[0] == "s":
        return PREDICATES
    if kind[0] == "u":
        return {**PREDICATES, **{k: PREDICATES[v] for k, v in UNSIGNED_NAMES.items()}}

    def either_nan(a, b):
        return np.isnan(a) | np.isnan(b)

    table = {"num": lambda a, b: ~either_nan(a, b), "nan": either_nan}
    for name, function in PREDICATES.items():
        table[name] = lambda a, b, f=function: f(a, b) & ~either_nan(a, b)
        table[name + "u"] = lambda a, b, f=function: f(a, b) | either_nan(a, b)
    return table


def integer_cases(kind):
    dtype = {"16": np.uint16, "32": np.uint32, "64": np.uint64}[kind[1:]]
    a, b = pairs(INTEGERS[dtype], dtype)
    signed = kind[0] == "s"
    x, y = (v.view(SIGNED[v.itemsize]) if signed else v for v in (a, b))
    return compare_cases(kind, a, b, x, y)


def compare_cases(kind, a, b, x, y, ftz="", **options):
    """x and y: what a and b mean. Scalar halves have no second output."""
    flag = a.view(np.uint8).reshape(len(a), -1).sum(axis=1) % 2 == 0
    second = "f16" not in kind
    for name, function in comparisons(kind).items():
        truth = function(x, y)
        combined = [
            ("", "", truth, ~truth),
            (".and", ", %i2", truth & flag, ~truth & flag),
            (".or", ", !%i2", truth | ~flag, ~truth | ~flag),
            (".xor", ", %i2", truth ^ flag, ~truth ^ flag),
        ]
        lines, expected = [f"setp.{name}{ftz}.{kind} %o0, %i0, %i1;"], [truth]
        for combination, third, p, q in combined:
            at = len(expected)
            outputs = f"%o{at}|%o{at + 1}" if second else f"%o{at}"
            lines.append(f"setp.{name}{combination}{ftz}.{kind} {outputs}, %i0, %i1{third};")
            expected += [p, q] if second else [p]
        yield Case(
            f"setp.{name}{ftz}.{kind}",
            " ".join(lines),
            [a, b, flag],
            ["pred"] * len(expected),
            expected,
            threads=len(a),
            **options,
        )


def set_cases(kind, a, b, x, y, ftz="", **options):
    flag = np.arange(len(a)) % 3 == 0
    for name, function in comparisons(kind).items():
        truth = function(x, y)
        yield Case(
            f"set.{name}{ftz}.{kind}",
            f"set.{name}{ftz}.u32.{kind} %o0, %i0, %i1; set.{name}{ftz}.s32.{kind} %o1, %i0, %i1;"
            f"set.{name}{ftz}.f32.{kind} %o2, %i0, %i1;"
            f"set.{name}.xor{ftz}.u32.{kind} %o3, %i0, %i1, !%i2;",
            [a, b, flag],
            ["u32", "s32", "f32", "u32"],
            [
                np.where(truth, 0xFFFFFFFF, 0).astype(np.uint32),
                np.where(truth, -1, 0).astype(np.int32),
                truth.astype(np.float32),
                np.where(truth ^ ~flag, 0xFFFFFFFF, 0).astype(np.uint32),
            ],
            threads=len(a),
            **options,
        )


def real_cases():
    for kind, dtype in (("f32", np.float32), ("f64", np.float64)):
        a, b = pairs(REALS, dtype)
        yield from compare_cases(kind, a, b, a, b)
        yield from set_cases(kind, a, b, a, b)
    a, b = pairs(REALS, np.float32)
    x, y = (flush(v.view(np.uint32)).view(np.float32) for v in (a, b))
    yield from compare_cases("f32", a, b, x, y, ftz=".ftz")
    yield from set_cases("f32", a, b, x, y, ftz=".ftz")


def half_cases():
    values = [0.0, -0.0, 1.0, -1.0, 1e-6, -1e-6, np.inf, -np.inf, np.nan, 2.5]
    a, b = pairs(values, np.float16)
    small = np.finfo(np.float16).tiny
    x, y = (np.where(np.abs(v) < small, np.copysign(np.float16(0), v), v) for v in (a, b))
    yield from compare_cases("f16", a, b, a, b)
    yield from compare_cases("f16", a, b, x, y, ftz=".ftz")
    wide = [v.astype(np.float32) for v in pairs(REALS, np.float32)]
    bits = [(v.view(np.uint32) >> 16).astype(np.uint16) for v in wide]
    kept = [(v.astype(np.uint32) << 16).view(np.float32) for v in bits]
    yield from compare_cases("bf16", *bits, *kept, target="sm_90")
    yield from packed_cases("f16x2", a.view(np.uint16), b.view(np.uint16), a, b, 0x3C00)
    yield from packed_cases("bf16x2", *bits, *kept, 0x3F80, target="sm_90")


def packed_cases(kind, a, b, x, y, one, **options):
    """Low halves a and b, high halves the same in reverse order."""
    pack = [v.astype(np.uint32) | v[::-1].astype(np.uint32) << np.uint32(16) for v in (a, b)]
    flag = np.arange(len(a)) % 3 == 0
    for name, function in comparisons("f16").items():
        low, high = function(x, y), function(x[::-1], y[::-1])
        yield Case(
            f"setp.{name}.{kind}",
            f"setp.{name}.{kind} %o0|%o1, %i0, %i1;"
            f"setp.{name}.and.{kind} %o2|%o3, %i0, %i1, %i2;"
            f"set.{name}.{kind}.{kind} %o4, %i0, %i1; set.{name}.u32.{kind} %o5, %i0, %i1;",
            [*pack, flag],
            ["pred"] * 4 + ["b32"] * 2,
            [
                low,
                high,
                low & flag,
                high & flag,
                (low * one + high * (one << 16)).astype(np.uint32),
                (low * 0xFFFF + high * 0xFFFF0000).astype(np.uint32),
            ],
            threads=len(a),
            **options,
        )


EIGHT = np.arange(32)
P, Q = EIGHT % 2 == 1, EIGHT // 2 % 2 == 1
LOGIC = [
    Case(
        "logic of predicates",
        "and.pred %o0, %i0, %i1; or.pred %o1, %i0, %i1; xor.pred %o2, %i0, %i1; not.pred %o3, %i0;"
        "mov.pred %o4, %i1; @%i0 not.pred %o4, %o4;",
        [P, Q],
        ["pred"] * 5,
        [P & Q, P | Q, P ^ Q, ~P, np.where(P, ~Q, Q)],
    ),
    Case(
        "a predicate inverted by xor",
        "xor.pred %o0, %i0, -1; @%i1 xor.pred %o0, %o0, -1;",
        [P, Q],
        ["pred"],
        [~P ^ Q],
    ),
    Case(
        "setp with a sink",
        "setp.lt.s32 _|%o0, %i0, 4; setp.lt.s32 %o1|_, %i0, 4;",
        [EIGHT.astype(np.int32)],
        ["pred", "pred"],
        [EIGHT >= 4, EIGHT < 4],
        emulator_only=True,
    ),
    Case(
        "setp guarded",
        "mov.pred %o0, %i1; @%i2 setp.gt.u32 %o0, %i0, 15;",
        [EIGHT.astype(np.uint32), Q, P],
        ["pred"],
        [np.where(P, EIGHT > 15, Q)],
    ),
    Case(
        "setp into its own third predicate",
        "mov.pred %o0, %i1; setp.gt.or.u32 %o0, %i0, 15, %o0;",
        [EIGHT.astype(np.uint32), Q],
        ["pred"],
        [(EIGHT > 15) | Q],
    ),
    Case(
        "set to halves",
        "set.lt.f16.f16 %o0, %i0, %i1; set.lt.u16.f16 %o1, %i0, %i1; set.lt.f16.s32 %o2, %i2, 9;",
        [
            np.linspace(-1, 1, 32).astype(np.float16),
            np.zeros(32, np.float16),
            EIGHT.astype(np.int32),
        ],
        ["f16", "u16", "f16"],
        [
            (EIGHT < 16).astype(np.float16),
            np.where(EIGHT < 16, 0xFFFF, 0).astype(np.uint16),
            (EIGHT < 9).astype(np.float16),
        ],
    ),
    Case(
        "set to bf16",
        "set.lt.bf16.bf16 %o0, %i0, %i1; set.lt.u32.bf16 %o1, %i0, %i1;",
        [
            (np.linspace(-1, 1, 32).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16),
            np.zeros(32, np.uint16),
        ],
        ["b16", "u32"],
        [
            np.where(EIGHT < 16, 0x3F80, 0).astype(np.uint16),
            np.where(EIGHT < 16, 0xFFFFFFFF, 0).astype(np.uint32),
        ],
        target="sm_90",
    ),
]


def all_set_integers():
    for kind in ("u32", "s32", "u64", "s64", "b32", "b64", "u16", "s16", "b16"):
        dtype = {"16": np.uint16, "32": np.uint32, "64": np.uint64}[kind[1:]]
        a, b = pairs(INTEGERS[dtype], dtype)
        x, y = (v.view(SIGNED[v.itemsize]) if kind[0] == "s" else v for v in (a, b))
        yield from set_cases(kind, a, b, x, y)


CASES = [
    *(
        case
        for kind in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
        for case in integer_cases(kind)
    ),
    *all_set_integers(),
    *real_cases(),
    *half_cases(),
    *LOGIC,
]
