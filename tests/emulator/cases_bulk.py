"""Bulk copies and reductions, clusters, setmaxnreg. Tensor copies need a tensor map, which the
harness cannot make for both kinds of device: tests/emulator/test_tensor_copy.cpp."""

import numpy as np
from cases_async import HOPPER, LANES, RANDOM, SOURCE, WAIT, WORDS, init
from instruction import Case

STAGE = """
    .reg .b32 %a;
    shl.b32 %a, %thread, 2;
    add.u32 %a, %smem, %a;
    st.shared.u32 [%a], %i0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
"""
STORED = """
    @%first cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
"""
BULK = [
    Case(
        "cp.async.bulk to shared memory",
        init(1)
        + """
        .reg .b32 %a;
        @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 128;
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [%smem], [%b0], 128, [%bar];
        """
        + WAIT
        + """
        shl.b32 %a, %thread, 2;
        add.u32 %a, %smem, %a;
        ld.shared.u32 %o0, [%a];""",
        outputs=["u32"],
        expected=[SOURCE[:32]],
        buffers=[SOURCE],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "cp.async.bulk with prefetch and policy",
        init(1)
        + """
        .reg .b32 %a;
        .reg .b64 %policy;
        createpolicy.fractional.L2::evict_last.b64 %policy;
        @%first cp.async.bulk.prefetch.L2.global [%b0], 128;
        @%first mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 128;
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint
            [%smem], [%b0], 128, [%bar], %policy;
        @%first mbarrier.arrive.release.cta.shared::cta.b64 _, [%bar];
        """
        + WAIT
        + """
        shl.b32 %a, %thread, 2;
        add.u32 %a, %smem, %a;
        ld.shared.u32 %o0, [%a];""",
        outputs=["u32"],
        expected=[SOURCE[:32]],
        buffers=[SOURCE],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "cp.async.bulk to global memory",
        init(1)
        + STAGE
        + "@%first cp.async.bulk.global.shared::cta.bulk_group [%b0], [%smem], 64;"
        + STORED,
        [WORDS],
        buffers=[np.zeros(32, np.uint32)],
        expected_buffers=[np.where(LANES < 16, WORDS, 0).astype(np.uint32)],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "cp.async.bulk misses bytes",
        init(1)
        + """
        @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 160;
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [%smem], [%b0], 128, [%bar];
        """
        + WAIT,
        buffers=[SOURCE],
        shared=4096,
        fault="32 bytes awaited",
        emulator_only=True,
        **HOPPER,
    ),
    Case(
        "cp.async.bulk never waited for",
        init(1) + STAGE + "@%first cp.async.bulk.global.shared::cta.bulk_group [%b0], [%smem], 64;",
        [WORDS],
        buffers=[np.zeros(32, np.uint32)],
        shared=4096,
        fault="wait_group.read is missing",
        emulator_only=True,
        **HOPPER,
    ),
    Case(
        "cp.async.bulk without a proxy fence",
        init(1)
        + STAGE.replace("fence.proxy.async.shared::cta;", "")
        + "@%first cp.async.bulk.global.shared::cta.bulk_group [%b0], [%smem], 64;"
        + STORED,
        [WORDS],
        buffers=[np.zeros(32, np.uint32)],
        shared=4096,
        fault="proxy",
        emulator_only=True,
        **HOPPER,
    ),
]


def reduction(operation, old, data, want):
    return Case(
        f"cp.reduce.async.bulk.{operation}",
        init(1)
        + STAGE
        + "@%first cp.reduce.async.bulk.global.shared::cta.bulk_group"
        + f".{operation} [%b0], [%smem], 128;"
        + STORED,
        [np.ascontiguousarray(data).view(np.uint32)],
        buffers=[old],
        expected_buffers=[want],
        shared=4096,
        **HOPPER,
    )


def bfloat(values):
    """Bits of floats that bf16 holds exactly."""
    return (np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


OTHERS = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
FLOATS = RANDOM.normal(size=(2, 32)).astype(np.float32)
HALVES = RANDOM.normal(size=(2, 64)).astype(np.float16)
LONGS = RANDOM.integers(0, 1 << 64, (2, 16), dtype=np.uint64)
COUNTS = RANDOM.integers(0, 40, (2, 32), dtype=np.uint32)
SMALL = RANDOM.integers(-60, 60, (2, 64)).astype(np.float32)
S = np.int32
REDUCTIONS = [
    reduction("add.u32", OTHERS, WORDS, OTHERS + WORDS),
    reduction("min.u32", OTHERS, WORDS, np.minimum(OTHERS, WORDS)),
    reduction("max.s32", OTHERS, WORDS, np.maximum(OTHERS.view(S), WORDS.view(S)).view(np.uint32)),
    reduction("min.s32", OTHERS, WORDS, np.minimum(OTHERS.view(S), WORDS.view(S)).view(np.uint32)),
    reduction("and.b32", OTHERS, WORDS, OTHERS & WORDS),
    reduction("or.b32", OTHERS, WORDS, OTHERS | WORDS),
    reduction("xor.b32", OTHERS, WORDS, OTHERS ^ WORDS),
    reduction("inc.u32", COUNTS[0], COUNTS[1], np.where(COUNTS[0] >= COUNTS[1], 0, COUNTS[0] + 1)),
    reduction(
        "dec.u32",
        COUNTS[0],
        COUNTS[1],
        np.where((COUNTS[0] == 0) | (COUNTS[0] > COUNTS[1]), COUNTS[1], COUNTS[0] - 1),
    ),
    reduction("add.u64", LONGS[0], LONGS[1], LONGS[0] + LONGS[1]),
    reduction(
        "max.s64",
        LONGS[0],
        LONGS[1],
        np.maximum(LONGS[0].view(np.int64), LONGS[1].view(np.int64)).view(np.uint64),
    ),
    reduction("and.b64", LONGS[0], LONGS[1], LONGS[0] & LONGS[1]),
    reduction("add.f32", FLOATS[0], FLOATS[1], FLOATS[0] + FLOATS[1]),
    reduction("add.noftz.f16", HALVES[0], HALVES[1], HALVES[0] + HALVES[1]),
    reduction("max.f16", HALVES[0], HALVES[1], np.maximum(HALVES[0], HALVES[1])),
    reduction("add.noftz.bf16", bfloat(SMALL[0]), bfloat(SMALL[1]), bfloat(SMALL[0] + SMALL[1])),
    reduction(
        "min.bf16", bfloat(SMALL[0]), bfloat(SMALL[1]), bfloat(np.minimum(SMALL[0], SMALL[1]))
    ),
]

CLUSTER = """
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""
PAIR = {"grid": (2, 1, 1), "cluster": (2, 1, 1), "shared": 4096, **HOPPER}
PEER = """
    .reg .b32 %rank, %peer, %peer_bar, %peer_smem, %a;
    mov.u32 %rank, %cluster_ctarank;
    xor.b32 %peer, %rank, 1;
    mapa.shared::cluster.u32 %peer_smem, %smem, %peer;
    mapa.shared::cluster.u32 %peer_bar, %bar, %peer;
"""
PAIRS = [
    Case(
        "getctarank and mapa",
        init(1)
        + PEER
        + """
        .reg .b64 %generic;
        getctarank.shared::cluster.u32 %o0, %peer_smem;
        cvt.u64.u32 %generic, %smem;
        cvta.shared.u64 %generic, %generic;
        mapa.u64 %generic, %generic, %peer;
        getctarank.u64 %o1, %generic;""",
        outputs=["u32", "u32"],
        expected=[np.repeat([1, 0], 32).astype(np.uint32)] * 2,
        **PAIR,
    ),
    Case(
        "remote arrivals",
        init(32)
        + PEER
        + CLUSTER
        + "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer_bar];"
        + WAIT
        + "mov.u32 %o0, 7;"
        + CLUSTER,
        outputs=["u32"],
        expected=[np.full(64, 7, np.uint32)],
        **PAIR,
    ),
    Case(
        "st.async",
        init(1)
        + PEER
        + """
        @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 128;
        shl.b32 %a, %local, 2;
        add.u32 %peer_smem, %peer_smem, %a;
        add.u32 %a, %smem, %a;
        """
        + CLUSTER
        + """
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32
            [%peer_smem], %i0, [%peer_bar];
        """
        + WAIT
        + "ld.shared.u32 %o0, [%a];"
        + CLUSTER,
        [SOURCE[:64]],
        outputs=["u32"],
        expected=[np.roll(SOURCE[:64], 32)],
        **{**PAIR, "version": "8.1"},
    ),
    Case(
        "red.async",
        init(1)
        + PEER
        + """
        @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 128;
        @%first st.shared.u32 [%smem], 1000;
        """
        + CLUSTER
        + """
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
            [%peer_smem], %local, [%peer_bar];
        """
        + WAIT
        + "ld.shared.u32 %o0, [%smem];"
        + CLUSTER,
        outputs=["u32"],
        expected=[np.full(64, 1000 + 31 * 16, np.uint32)],
        **{**PAIR, "version": "8.1"},
    ),
    Case(
        "cp.async.bulk to the other block",
        init(1)
        + PEER
        + """
        @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 128;
        shl.b32 %a, %local, 2;
        add.u32 %a, %smem, %a;
        st.shared.u32 [%a], %i0;
        fence.proxy.async.shared::cta;
        """
        + CLUSTER
        + """
        add.u32 %peer_smem, %peer_smem, 256;
        @%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
            [%peer_smem], [%smem], 128, [%peer_bar];
        """
        + WAIT
        + "ld.shared.u32 %o0, [%a+256];"
        + CLUSTER,
        [SOURCE[:64]],
        outputs=["u32"],
        expected=[np.roll(SOURCE[:64], 32)],
        **PAIR,
    ),
    Case(
        "cp.async.bulk.multicast",
        init(1)
        + PEER
        + """
        .reg .b16 %mask;
        .reg .b64 %from;
        .reg .b32 %offset;
        mov.b16 %mask, 3;
        shl.b32 %offset, %rank, 7;
        cvt.u64.u32 %from, %offset;
        add.u64 %from, %b0, %from;
        add.u32 %offset, %smem, %offset;
        @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 256;
        """
        + CLUSTER
        + """
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [%offset], [%from], 128, [%bar], %mask;
        """
        + WAIT
        + """
        shl.b32 %a, %local, 3;
        add.u32 %a, %smem, %a;
        ld.shared.v2.u32 {%o0_0, %o0_1}, [%a];
        """
        + CLUSTER,
        outputs=["u32[2]"],
        expected=[np.tile(SOURCE[:64].reshape(32, 2), (2, 1))],
        buffers=[SOURCE],
        **PAIR,
    ),
    Case(
        "griddepcontrol",
        "griddepcontrol.wait; griddepcontrol.launch_dependents; mov.u32 %o0, 3;",
        outputs=["u32"],
        expected=[np.full(32, 3, np.uint32)],
        **HOPPER,
    ),
]


def trade(less, more):
    return f"""
    .reg .pred %less;
    setp.lt.u32 %less, %thread, 128;
    @%less bra LESS;
    setmaxnreg.inc.sync.aligned.u32 {more};
    bra END;
    LESS:
    setmaxnreg.dec.sync.aligned.u32 {less};
    END:
    bar.sync 0;
    mov.u32 %o0, 9;"""


REGISTERS = [
    Case(
        "setmaxnreg",
        trade(40, 200),
        outputs=["u32"],
        expected=[np.full(256, 9, np.uint32)],
        threads=256,
        directives=".maxntid 256, 1, 1 .maxnreg 120",
        **HOPPER,
    ),
    Case(
        "setmaxnreg that is never granted",
        trade(40, 208),
        outputs=["u32"],
        threads=256,
        directives=".maxntid 256, 1, 1 .maxnreg 120",
        fault="register budget",
        emulator_only=True,
        **HOPPER,
    ),
]

CASES = [*BULK, *REDUCTIONS, *PAIRS, *REGISTERS]
