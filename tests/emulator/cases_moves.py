"""mov, selp, slct, prmt, cvta, isspacep."""

import numpy as np
from instruction import Case

RANDOM = np.random.default_rng(20)
LANES = np.arange(32, dtype=np.uint32)
WORDS = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
OTHERS = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
LONGS = RANDOM.integers(0, 1 << 64, 32, dtype=np.uint64)
SHORTS = WORDS.astype(np.uint16)
REALS = np.linspace(-8, 7, 32).astype(np.float32)
ODD = LANES % 2 == 1


def full(value, dtype=np.uint32, count=32):
    return np.full(count, value, dtype=dtype)


MOVES = [
    *(
        Case(f"mov.{t}", f"mov.{t} %o0, %i0;", [WORDS], ["b32"], [WORDS])
        for t in ("b32", "u32", "s32", "f32")
    ),
    *(
        Case(f"mov.{t}", f"mov.{t} %o0, %i0;", [LONGS], ["b64"], [LONGS])
        for t in ("b64", "u64", "s64", "f64")
    ),
    *(
        Case(f"mov.{t}", f"mov.{t} %o0, %i0;", [SHORTS], ["b16"], [SHORTS])
        for t in ("b16", "u16", "s16")
    ),
    Case("mov.pred", "mov.pred %o0, %i0;", [ODD], ["pred"], [ODD]),
    Case(
        "mov of literals",
        """mov.u32 %o0, 0xdeadbeef; mov.s32 %o1, -3; mov.f32 %o2, 0f3FC00000;
        mov.f64 %o3, 0d3FF8000000000000; mov.b64 %o4, -2; mov.u16 %o5, 0xfffe; mov.s16 %o6, -7;
        mov.u32 %o7, WARP_SZ;""",
        outputs=["u32", "s32", "f32", "f64", "b64", "u16", "s16", "u32"],
        expected=[
            full(0xDEADBEEF),
            full(-3, np.int32),
            full(1.5, np.float32),
            full(1.5, np.float64),
            full((1 << 64) - 2, np.uint64),
            full(0xFFFE, np.uint16),
            full(-7, np.int16),
            full(32),
        ],
    ),
    Case(
        "mov guarded",
        "mov.b32 %o0, 5; @%i1 mov.b32 %o0, %i0; @!%i1 mov.b64 %o1, 9; @%i1 mov.b64 %o1, 8;",
        [WORDS, ODD],
        ["b32", "b64"],
        [np.where(ODD, WORDS, np.uint32(5)), np.where(ODD, 8, 9).astype(np.uint64)],
    ),
    Case(
        "mov.b32 unpack to b16",
        "mov.b32 {%o0, %o1}, %i0;",
        [WORDS],
        ["b16", "b16"],
        [WORDS.astype(np.uint16), (WORDS >> 16).astype(np.uint16)],
    ),
    Case(
        "mov.b64 unpack to b32",
        "mov.b64 {%o0, %o1}, %i0;",
        [LONGS],
        ["b32", "b32"],
        [LONGS.astype(np.uint32), (LONGS >> np.uint64(32)).astype(np.uint32)],
    ),
    Case(
        "mov.b64 unpack to b16",
        "mov.b64 {%o0, %o1, %o2, %o3}, %i0;",
        [LONGS],
        ["b16"] * 4,
        [(LONGS >> np.uint64(16 * i)).astype(np.uint16) for i in range(4)],
    ),
    Case(
        "mov.b32 pack b16",
        "mov.b32 %o0, {%i0, %i1};",
        [SHORTS, OTHERS.astype(np.uint16)],
        ["b32"],
        [SHORTS.astype(np.uint32) | OTHERS << np.uint32(16)],
    ),
    Case(
        "mov.b64 pack b32",
        "mov.b64 %o0, {%i0, %i1};",
        [WORDS, OTHERS],
        ["b64"],
        [WORDS.astype(np.uint64) | OTHERS.astype(np.uint64) << np.uint64(32)],
    ),
    Case(
        "mov.b64 pack b16",
        "mov.b64 %o0, {%i0_0, %i0_1, %i0_2, %i0_3};",
        [LONGS.view(np.uint16).reshape(32, 4)],
        ["b64"],
        [LONGS],
    ),
    Case(
        "mov swaps halves in place",
        """.reg .b16 %l, %h; .reg .b32 %r; mov.b32 %r, %i0; mov.b32 {%l, %h}, %r;
        mov.b32 %r, {%h, %l}; mov.b32 %o0, %r;""",
        [WORDS],
        ["b32"],
        [WORDS << np.uint32(16) | WORDS >> np.uint32(16)],
    ),
    Case(
        "mov unpacks into its source's half",
        "mov.b64 %o0, %i0; .reg .b32 %h; mov.b64 {_, %h}, %o0; mov.b64 %o0, {%h, %h};",
        [LONGS],
        ["b64"],
        [(LONGS >> np.uint64(32)) * np.uint64(0x100000001)],
    ),
    Case(
        "mov of shared addresses",
        """.reg .b32 %a, %b; .reg .b64 %l, %g;
        mov.u32 %a, memory; mov.u64 %l, memory; add.u32 %b, %a, 8;
        st.shared.u32 [%b], %thread; bar.warp.sync -1;
        ld.shared.u32 %o0, [memory+8]; cvt.u32.u64 %b, %l; setp.eq.u32 %o1, %a, %b;
        mov.u32 %b, memory+12; sub.u32 %o2, %b, %a;""",
        outputs=["u32", "pred", "u32"],
        expected=[full(0, count=1), full(True, np.bool_, 1), full(12, count=1)],
        threads=1,
        shared=32,
    ),
    Case(
        "mov of global addresses",
        ".reg .b64 %l; mov.u64 %l, table; ld.global.u32 %o0, [%l]; mov.u64 %l, table+8;"
        "ld.global.u32 %o1, [%l];",
        module=".global .align 8 .u32 table[4] = {11, 22, 33, 44};",
        outputs=["u32", "u32"],
        expected=[full(11), full(33)],
    ),
]


CHOICES = [
    *(
        Case(
            f"selp.{t}",
            f"selp.{t} %o0, %i0, %i1, %i2;",
            [WORDS, OTHERS, ODD],
            ["b32"],
            [np.where(ODD, WORDS, OTHERS)],
        )
        for t in ("b32", "u32", "s32", "f32")
    ),
    *(
        Case(
            f"selp.{t}",
            f"selp.{t} %o0, %i0, %i1, %i2;",
            [LONGS, ~LONGS, ODD],
            ["b64"],
            [np.where(ODD, LONGS, ~LONGS)],
        )
        for t in ("b64", "u64", "s64", "f64")
    ),
    *(
        Case(
            f"selp.{t}",
            f"selp.{t} %o0, %i0, %i1, %i2;",
            [SHORTS, ~SHORTS, ODD],
            ["b16"],
            [np.where(ODD, SHORTS, ~SHORTS)],
        )
        for t in ("b16", "u16", "s16")
    ),
    Case(
        "selp of literals, guarded",
        "mov.b32 %o0, 3; @%i1 selp.s32 %o0, -1, 1, %i0;",
        [LANES % 4 < 2, ODD],
        ["s32"],
        [np.where(ODD, np.where(LANES % 4 < 2, -1, 1), 3).astype(np.int32)],
    ),
    Case(
        "slct.s32",
        "slct.b32.s32 %o0, %i0, %i1, %i2; slct.u64.s32 %o1, %i3, 5, %i2;",
        [WORDS, OTHERS, LANES.astype(np.int32) - 16, LONGS],
        ["b32", "u64"],
        [
            np.where(LANES >= 16, WORDS, OTHERS),
            np.where(LANES >= 16, LONGS, np.uint64(5)),
        ],
    ),
    Case(
        "slct.f32",
        "slct.b32.f32 %o0, 1, 2, %i0; slct.ftz.b32.f32 %o1, 1, 2, %i0;",
        [np.array([0.0, -0.0, 1, -1, np.nan, -1e-40, np.inf, -np.inf] * 4, np.float32)],
        ["u32", "u32"],
        [
            np.array([1, 1, 1, 2, 2, 2, 1, 2] * 4, np.uint32),
            np.array([1, 1, 1, 2, 2, 1, 1, 2] * 4, np.uint32),
        ],
    ),
]


def permuted(a, b, selectors):
    result = np.zeros(len(a), np.uint32)
    together = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    for i in range(4):
        choice = selectors >> (4 * i) & 15
        byte = (together >> ((choice & 7) * 8).astype(np.uint64) & np.uint64(255)).astype(np.uint32)
        byte = np.where(choice & 8, (byte >> 7) * 255, byte).astype(np.uint32)
        result |= byte << np.uint32(8 * i)
    return result


MODES = {
    "f4e": [0x3210, 0x4321, 0x5432, 0x6543],
    "b4e": [0x5670, 0x6701, 0x7012, 0x0123],
    "rc8": [0x0000, 0x1111, 0x2222, 0x3333],
    "ecl": [0x3210, 0x3211, 0x3222, 0x3333],
    "ecr": [0x0000, 0x1110, 0x2210, 0x3210],
    "rc16": [0x1010, 0x3232, 0x1010, 0x3232],
}
SELECTORS = RANDOM.integers(0, 1 << 16, 32, dtype=np.uint32)
PERMUTATIONS = [
    Case(
        "prmt.b32",
        "prmt.b32 %o0, %i0, %i1, %i2; prmt.b32 %o1, %i0, %i1, 0x5410;prmt.b32 %o2, %i0, 0, 0xba98;",
        [WORDS, OTHERS, SELECTORS | np.uint32(0xABCD0000)],
        ["b32"] * 3,
        [
            permuted(WORDS, OTHERS, SELECTORS),
            permuted(WORDS, OTHERS, full(0x5410)),
            permuted(WORDS, full(0), full(0xBA98)),
        ],
    ),
    *(
        Case(
            f"prmt.b32.{mode}",
            f"prmt.b32.{mode} %o0, %i0, %i1, %i2;",
            [WORDS, OTHERS, LANES],
            ["b32"],
            [permuted(WORDS, OTHERS, np.array(table, np.uint32)[LANES & 3])],
        )
        for mode, table in MODES.items()
    ),
]

ADDRESSES = [
    Case(
        "cvta.shared",
        """.reg .b64 %a, %g, %s; .reg .b32 %r;
        mov.u64 %a, memory; cvta.shared.u64 %g, %a; st.u32 [%g+4], 77;
        ld.shared.u32 %o0, [memory+4];
        cvta.to.shared.u64 %s, %g; cvt.u32.u64 %r, %s; st.shared.u32 [%r], 78; ld.u32 %o1, [%g];
        isspacep.shared %o2, %g; isspacep.global %o3, %g; isspacep.local %o4, %g;
        cvta.shared.u64 %g, memory; ld.u32 %o5, [%g];""",
        outputs=["u32", "u32", "pred", "pred", "pred", "u32"],
        expected=[
            full(77, count=1),
            full(78, count=1),
            full(True, np.bool_, 1),
            full(False, np.bool_, 1),
            full(False, np.bool_, 1),
            full(78, count=1),
        ],
        shared=16,
        threads=1,
    ),
    Case(
        "cvta.global",
        """.reg .b64 %g, %s; cvta.to.global.u64 %g, %b0; ld.global.u32 %o0, [%g];
        cvta.global.u64 %s, %g; ld.u32 %o1, [%s+4]; isspacep.global %o2, %s;
        isspacep.shared %o3, %s; isspacep.local %o4, %s; cvta.global.u64 %s, number;
        ld.u32 %o5, [%s];""",
        buffers=[np.array([5, 6], np.uint32)],
        module=".global .u32 number = 99;",
        outputs=["u32", "u32", "pred", "pred", "pred", "u32"],
        expected=[
            full(5),
            full(6),
            full(True, np.bool_),
            full(False, np.bool_),
            full(False, np.bool_),
            full(99),
        ],
    ),
    Case(
        "cvta.const",
        ".reg .b64 %a, %g; mov.u64 %a, number; cvta.const.u64 %g, %a; ld.u32 %o0, [%g];"
        "cvta.to.const.u64 %a, %g; ld.const.u32 %o1, [%a+4];",
        module=".const .u32 number[2] = {98, 97};",
        outputs=["u32", "u32"],
        expected=[full(98), full(97)],
    ),
    Case(
        "cvta.local",
        """.local .align 8 .b8 mine[16]; .reg .b64 %a, %g;
        mov.u64 %a, mine; cvta.local.u64 %g, %a; st.u32 [%g+4], %thread; ld.local.u32 %o0, [%a+4];
        isspacep.local %o1, %g; isspacep.shared %o2, %g; isspacep.global %o3, %g;
        cvta.to.local.u64 %a, %g; st.local.u32 [%a], 3; ld.u32 %o4, [%g];""",
        outputs=["u32", "pred", "pred", "pred", "u32"],
        expected=[
            LANES,
            full(True, np.bool_),
            full(False, np.bool_),
            full(False, np.bool_),
            full(3),
        ],
    ),
    Case(
        "isspacep.shared::cta and ::cluster",
        """.reg .b64 %g, %h; .reg .b32 %r, %n; cvta.shared.u64 %g, memory;
        isspacep.shared::cta %o0, %g; isspacep.shared::cluster %o1, %g;
        mov.u32 %r, %cluster_ctarank; xor.b32 %r, %r, 1; mapa.u64 %h, %g, %r;
        isspacep.shared::cta %o2, %h; isspacep.shared::cluster %o3, %h;
        st.shared.u32 [memory], 1; barrier.cluster.arrive; barrier.cluster.wait;""",
        outputs=["pred"] * 4,
        expected=[
            full(True, np.bool_, 2),
            full(True, np.bool_, 2),
            full(False, np.bool_, 2),
            full(True, np.bool_, 2),
        ],
        shared=16,
        threads=1,
        grid=(2, 1, 1),
        cluster=(2, 1, 1),
        target="sm_90",
    ),
]

CASES = [*MOVES, *CHOICES, *PERMUTATIONS, *ADDRESSES]
