"""mma.sync, ldmatrix, stmatrix, movmatrix."""

import itertools
import zlib

import numpy as np
from instruction import Case
from matrix_formats import (
    BITS,
    FP8,
    INTEGERS,
    SPREADS,
    decode,
    encode,
    fragment_a,
    fragment_b,
    fragment_c,
    numbers,
    summands,
)
from matrix_sums import tensor_core_sum

LANES = np.arange(32, dtype=np.uint32)


def vector(letter, count):
    return (
        "{" + ", ".join(f"%{letter}_{i}" if count > 1 else f"%{letter}" for i in range(count)) + "}"
    )


def mma_body(instruction, counts):
    d, a, b, c = counts
    operands = [vector("o0", d), vector("i0", a), vector("i1", b), vector("i2", c)]
    return f"{instruction} {', '.join(operands)};"


def mma_sum(a, b, c, kinds, accumulator, saturate=False):
    """D of codes a [m, k], b [k, n] and numbers c."""
    if accumulator != "s32":
        return tensor_core_sum(a, b, c, kinds, accumulator)
    product = decode(kinds[0], a) @ decode(kinds[1], b) + c
    if saturate:
        product = np.clip(product, -(2**31), 2**31 - 1)
    return (product.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)


def mma_case(
    shape, kinds, accumulator, spread="exact", saturate=False, target="sm_80", version="8.0"
):
    m, _, k = (int(part) for part in shape[1:].replace("n", "k").split("k"))
    name = f"mma.{shape}.{accumulator}.{kinds[0]}.{kinds[1]}"
    name += ("" if spread == "exact" else "." + spread) + (".satfinite" if saturate else "")
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    a, b = numbers(rng, kinds[0], (m, k), spread), numbers(rng, kinds[1], (k, 8), spread)
    if accumulator == "s32":
        edge = 2**31 - 20000
        c = rng.choice([-edge, edge, 0, 12345], (m, 8))
    else:
        c = summands(rng, kinds, accumulator, (m, 8), spread)
    half = accumulator == "f16"
    stored = c.astype(np.int64).astype(np.uint32) if accumulator == "s32" else c.astype(np.float32)
    want = fragment_c(mma_sum(a, b, c, kinds, accumulator, saturate), half)
    inputs = [fragment_a(a, kinds[0]), fragment_b(b, kinds[1]), fragment_c(stored, half)]
    middle = ".satfinite" if saturate else ""
    text = f"mma.sync.aligned.{shape}.row.col{middle}"
    text += f".{accumulator}.{kinds[0]}.{kinds[1]}.{accumulator}"
    outputs = {"f16": "f16x2", "f32": "f32", "s32": "u32"}[accumulator]
    return Case(
        name,
        mma_body(text, [x.shape[1] for x in (want, *inputs)]),
        [x.squeeze() if x.shape[1] == 1 else x for x in inputs],
        [f"{outputs}[{want.shape[1]}]"],
        [want],
        target=target,
        version=version,
    )


def mma_cases():
    for kind, shapes in {
        "f16": ("m16n8k8", "m16n8k16"),
        "bf16": ("m16n8k8", "m16n8k16"),
        "tf32": ("m16n8k4", "m16n8k8"),
    }.items():
        for shape, spread in itertools.product(shapes, SPREADS):
            yield mma_case(shape, (kind, kind), "f32", spread)
            if kind == "f16":
                yield mma_case(shape, (kind, kind), "f16", spread)
    for a, b, spread in itertools.product(FP8, FP8, SPREADS):
        yield mma_case("m16n8k32", (a, b), "f32", spread, target="sm_89", version="8.4")
        for accumulator, shape in (("f16", "m16n8k32"), ("f16", "m16n8k16"), ("f32", "m16n8k16")):
            options = {"target": "sm_89", "version": "8.7"}
            yield mma_case(shape, (a, b), accumulator, spread, **options)
    for size, shapes in {
        "8": ("m8n8k16", "m16n8k16", "m16n8k32"),
        "4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    }.items():
        for shape in shapes:
            for kinds in (("s", "s"), ("s", "u"), ("u", "s"), ("u", "u")):
                pair = tuple(kind + size for kind in kinds)
                assert pair[0] in INTEGERS and BITS[pair[0]] == int(size)
                yield mma_case(shape, pair, "s32")
                yield mma_case(shape, pair, "s32", saturate=True)


def special_mma(name, kind, a, b, c, want):
    """One product a * b in k = 0, the same in all rows and columns."""
    matrix_a, matrix_b = np.zeros((16, 16)), np.zeros((16, 8))
    matrix_a[:, : len(a)], matrix_b[: len(b), :] = a, np.reshape(b, (-1, 1))
    inputs = [
        fragment_a(encode(kind, matrix_a), kind),
        fragment_b(encode(kind, matrix_b), kind),
        np.full((32, 4), c, np.float32),
    ]
    text = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
    expected = [np.full((32, 4), want, np.float32)]
    return Case(name, mma_body(text, (4, 4, 2, 4)), inputs, ["f32[4]"], expected)


INF = np.inf
SPECIAL = [
    # The sum is cut toward zero: to nearest it would be 1 + 2^-23.
    special_mma("mma.truncates", "f16", [1.5 * 2**-12], [2**-12], 1, 1),
    special_mma("mma.truncates.negative", "f16", [-1.5 * 2**-12], [2**-12], -1, -1),
    special_mma("mma.cancels", "bf16", [2.0**60, -(2.0**60), 1], [2.0**60, 2.0**60, 1], 0, 0),
    special_mma("mma.infinity", "f16", [INF, 1], [2, 1], 5, INF),
    special_mma("mma.minus_infinity", "bf16", [INF], [-2], 5, -INF),
    special_mma("mma.infinity_times_zero", "f16", [INF], [0], 5, np.nan),
    special_mma("mma.opposite_infinities", "bf16", [INF, -INF], [1, 1], 0, np.nan),
    special_mma("mma.nan", "f16", [np.nan], [0], 0, np.nan),
    special_mma("mma.infinite_accumulator", "f16", [1], [1], -INF, -INF),
    special_mma("mma.overflows", "bf16", [2.0**100], [2.0**100], 0, INF),
    special_mma("mma.subnormal_operand", "bf16", [2.0**-130], [2.0**127], 0, 2.0**-3),
    special_mma("mma.subnormal_result", "bf16", [2.0**-70], [2.0**-70], 0, 2.0**-140),
    special_mma("mma.tiny_accumulator", "bf16", [0], [0], 2.0**-140, 2.0**-140),
]


# ldmatrix: lane l stores row `order[l]` of the matrices where its address will be.
def matrices(count):
    rng = np.random.default_rng(count)
    return rng.integers(0, 1 << 16, (count, 8, 8), dtype=np.uint32)


def words(matrix):
    """[8, 8] of 16 bits to [8, 4] words."""
    return matrix[:, 0::2] | matrix[:, 1::2] << 16


def fragments(all_, transposed):
    turned = all_.transpose(0, 2, 1) if transposed else all_
    return np.stack([words(m)[LANES // 4, LANES % 4] for m in turned], axis=1)


PROLOGUE = """
.reg .b32 %base, %row, %at;
mov.u32 %base, memory;
"""


def ldmatrix_case(count, transposed, space):
    all_ = matrices(count)
    rows = np.zeros((32, 4), np.uint32)
    rows[: count * 8] = np.concatenate([words(m) for m in all_])
    # Rows lie in another order than the lanes that name them.
    place = (LANES * 13 + 5) % 32
    address = "%at" if space else "%wide"
    body = (
        PROLOGUE
        + """
.reg .b64 %wide;
mad.lo.u32 %at, %i1, 16, %base;
st.shared.v4.b32 [%at], {%i0_0, %i0_1, %i0_2, %i0_3};
bar.sync 0;
cvt.u64.u32 %wide, %at;
cvta.shared.u64 %wide, %wide;
"""
        + f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}{space}.b16 "
        + f"{vector('o0', count)}, [{address}];"
    )
    want = fragments(all_, transposed)
    return Case(
        f"ldmatrix.x{count}{'.trans' if transposed else ''}{space or '.generic'}",
        body,
        [rows, place],
        [f"u32[{count}]" if count > 1 else "u32"],
        [want if count > 1 else want[:, 0]],
        shared=512,
    )


def stmatrix_case(count, transposed):
    all_ = matrices(count)
    inputs = fragments(all_, transposed)
    shape = f"m8n8.x{count}{'.trans' if transposed else ''}"
    body = (
        PROLOGUE
        + f"""
mad.lo.u32 %at, %i1, 16, %base;
stmatrix.sync.aligned.{shape}.shared.b16 [%at], {vector("i0", count)};
bar.sync 0;
and.b32 %row, %thread, {count * 8 - 1};
mad.lo.u32 %at, %row, 16, %base;
ld.shared.v4.b32 {{%o0_0, %o0_1, %o0_2, %o0_3}}, [%at];
"""
    )
    place = (LANES * 5 + 3) % (count * 8)
    order = np.empty(count * 8, np.int64)
    order[place[: count * 8]] = np.arange(count * 8)
    want = np.concatenate([words(m) for m in all_])[order][LANES % (count * 8)]
    return Case(
        f"stmatrix.x{count}{'.trans' if transposed else ''}",
        body,
        [inputs if count > 1 else inputs[:, 0], place],
        ["u32[4]"],
        [want],
        shared=512,
        target="sm_90",
    )


MOVES = [
    *[
        ldmatrix_case(count, transposed, space)
        for count in (1, 2, 4)
        for transposed in (False, True)
        for space in (".shared", ".shared::cta", "")
    ],
    *[stmatrix_case(count, transposed) for count in (1, 2, 4) for transposed in (False, True)],
    Case(
        "movmatrix",
        "movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;",
        [fragments(matrices(1), False)[:, 0]],
        ["u32"],
        [fragments(matrices(1), True)[:, 0]],
        version="7.8",
    ),
    Case(
        "ldmatrix.misaligned",
        PROLOGUE
        + """
mad.lo.u32 %at, %thread, 16, %base;
st.shared.v4.b32 [%at], {%i0, %i0, %i0, %i0};
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%o0}, [%at+8];""",
        [LANES],
        ["u32"],
        shared=512,
        fault="misaligned",
        emulator_only=True,
    ),
    Case(
        "mma.diverged",
        """
.reg .pred %half;
setp.lt.u32 %half, %thread, 16;
@%half movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;""",
        [LANES],
        ["u32"],
        fault="aligned",
        emulator_only=True,
    ),
]

CASES = [*mma_cases(), *SPECIAL, *MOVES]
