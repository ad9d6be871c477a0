"""cp.async, mbarriers, bulk copies, clusters, setmaxnreg. Tensor copies need a tensor map, which
the harness cannot make for both kinds of device: tests/emulated/test_bulk.cpp."""

import numpy as np
from instruction import Case

RANDOM = np.random.default_rng(50)
LANES = np.arange(32, dtype=np.uint32)
WORDS = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
SOURCE = RANDOM.integers(0, 1 << 32, 1024, dtype=np.uint32)
HOPPER = {"target": "sm_90a", "version": "8.0"}


def rows(array, width):
    return array[: 32 * width].reshape(32, width)


# Each thread copies `size` bytes of the buffer to shared memory and reads them back.
def copy_case(name, copy, expected, waits="cp.async.wait_all;", size=16, **options):
    words = size // 4
    vector = "" if words == 1 else f".v{words}"
    outputs = ", ".join(f"%o0_{i}" for i in range(words)) if words > 1 else ""
    target = f"{{{outputs}}}" if words > 1 else "%o0"
    return Case(
        name,
        f"""
        .reg .b32 %a, %m, %odd, %size;
        .reg .b64 %g, %w, %policy;
        .reg .pred %p;
        shl.b32 %m, %thread, {size.bit_length() - 1};
        cvt.u64.u32 %w, %m;
        add.u64 %g, %b0, %w;
        mov.u32 %a, memory;
        add.u32 %a, %a, %m;
        and.b32 %odd, %thread, 1;
        setp.ne.u32 %p, %odd, 0;
        mul.lo.u32 %size, %odd, {size};
        {copy}
        {waits}
        ld.shared{vector}.b32 {target}, [%a];""",
        outputs=[f"b32[{words}]" if words > 1 else "b32"],
        expected=[expected],
        buffers=[SOURCE],
        shared=1024,
        **options,
    )


ODD = (LANES % 2 == 1)[:, None]
COPIES = [
    *(
        copy_case(
            f"cp.async.ca {size}",
            f"cp.async.ca.shared.global [%a], [%g], {size};",
            rows(SOURCE, size // 4) if size > 4 else SOURCE[:32],
            size=size,
        )
        for size in (4, 8, 16)
    ),
    copy_case("cp.async.cg", "cp.async.cg.shared.global [%a], [%g], 16;", rows(SOURCE, 4)),
    copy_case(
        "cp.async with a cache policy",
        """createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
        cp.async.cg.shared.global.L2::cache_hint.L2::128B [%a], [%g], 16, %policy;""",
        rows(SOURCE, 4),
        version="7.4",
        # Compiled by the driver, an H200 ran it with one thread, and with more it stopped with
        # an illegal instruction.
        emulator_only=True,
    ),
    copy_case(
        "cp.async of part of the source",
        "cp.async.cg.shared.global.L2::128B [%a], [%g], 16, %size;",
        np.where(ODD, rows(SOURCE, 4), np.uint32(0)),
    ),
    copy_case(
        "cp.async of a literal part of the source",
        "cp.async.ca.shared.global [%a], [%g], 16, 12;",
        rows(SOURCE, 4) * np.array([1, 1, 1, 0], dtype=np.uint32),
    ),
    copy_case(
        "cp.async ignoring its source",
        "cp.async.ca.shared.global [%a], [%g], 16, %p;",
        np.where(ODD, np.uint32(0), rows(SOURCE, 4)),
        version="8.3",
    ),
    copy_case(
        "cp.async.wait_group",
        "cp.async.ca.shared.global [%a], [%g], 16;",
        rows(SOURCE, 4),
        waits="cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1;",
    ),
    copy_case(
        "cp.async.wait_group counts the younger groups",
        "cp.async.ca.shared.global [%a], [%g], 16;",
        None,
        waits="cp.async.commit_group; cp.async.wait_group 1;",
        fault="race",
        emulator_only=True,
    ),
    copy_case(
        "cp.async misaligned",
        "add.u64 %g, %g, 4; cp.async.ca.shared.global [%a], [%g], 8;",
        None,
        size=8,
        fault="must be a multiple of 8",
        emulator_only=True,
    ),
]

INIT = """
    .reg .b32 %bar, %smem, %local;
    .reg .pred %first, %done;
    mov.u32 %local, %tid.x;
    mov.u32 %smem, memory;
    add.u32 %bar, %smem, 2048;
    setp.eq.u32 %first, %local, 0;
    @%first mbarrier.init.shared.b64 [%bar], COUNT;
    @%first fence.mbarrier_init.release.cluster;
    bar.sync 0;
"""
WAIT = """
    WAIT:
    mbarrier.try_wait.parity.shared.b64 %done, [%bar], 0;
    @!%done bra WAIT;
"""


def init(count):
    return INIT.replace("COUNT", str(count))


BARRIERS = [
    Case(
        "mbarrier phases",
        init(32)
        + """
        .reg .b64 %state;
        .reg .pred %q0, %q1, %q2;
        mbarrier.test_wait.parity.shared.b64 %q0, [%bar], 1;
        bar.sync 0;
        mbarrier.arrive.shared.b64 %state, [%bar];
        """
        + WAIT
        + """
        mbarrier.test_wait.shared.b64 %q1, [%bar], %state;
        mbarrier.test_wait.parity.shared.b64 %q2, [%bar], 1;
        selp.u32 %o0, 1, 0, %q0;
        selp.u32 %o1, 1, 0, %q1;
        selp.u32 %o2, 1, 0, %q2;""",
        outputs=["u32", "u32", "u32"],
        expected=[np.ones(32, np.uint32), np.ones(32, np.uint32), np.zeros(32, np.uint32)],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "mbarrier.pending_count",
        init(5)
        + """
        .reg .b64 %state, %next;
        mov.u32 %o0, 0;
        mov.u32 %o1, 0;
        @%first mbarrier.arrive.noComplete.shared.b64 %state, [%bar], 2;
        @%first mbarrier.pending_count.b64 %o0, %state;
        @%first mbarrier.arrive.shared.b64 %next, [%bar];
        @%first mbarrier.pending_count.b64 %o1, %next;""",
        outputs=["u32", "u32"],
        expected=[np.where(LANES == 0, n, 0).astype(np.uint32) for n in (5, 3)],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "mbarrier.arrive_drop",
        init(33)
        + """
        .reg .b64 %state;
        .reg .pred %q;
        @%first mbarrier.arrive_drop.shared.b64 %state, [%bar];
        mbarrier.arrive.shared.b64 %state, [%bar];
        """
        + WAIT
        + """
        bar.sync 0;
        mbarrier.arrive.shared.b64 %state, [%bar];
        bar.sync 0;
        mbarrier.test_wait.parity.shared.b64 %q, [%bar], 1;
        selp.u32 %o0, 1, 0, %q;""",
        outputs=["u32"],
        expected=[np.ones(32, np.uint32)],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "mbarrier awaits bytes",
        init(1)
        + """
        .reg .pred %q0, %q1;
        @%first mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 64;
        bar.sync 0;
        mbarrier.test_wait.parity.shared.b64 %q0, [%bar], 0;
        bar.sync 0;
        @%first mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 64;
        """
        + WAIT
        + """
        mbarrier.test_wait.parity.shared.b64 %q1, [%bar], 0;
        selp.u32 %o0, 1, 0, %q0;
        selp.u32 %o1, 1, 0, %q1;""",
        outputs=["u32", "u32"],
        expected=[np.zeros(32, np.uint32), np.ones(32, np.uint32)],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "cp.async.mbarrier.arrive.noinc",
        init(32)
        + """
        .reg .b32 %a;
        .reg .b64 %w;
        shl.b32 %a, %thread, 2;
        cvt.u64.u32 %w, %a;
        add.u64 %w, %b0, %w;
        add.u32 %a, %smem, %a;
        cp.async.ca.shared.global [%a], [%w], 4;
        cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];
        """
        + WAIT
        + "ld.shared.u32 %o0, [%a];",
        outputs=["u32"],
        expected=[SOURCE[:32]],
        buffers=[SOURCE],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "cp.async.mbarrier.arrive",
        init(1)
        + """
        .reg .b32 %a;
        .reg .b64 %w;
        shl.b32 %a, %thread, 2;
        cvt.u64.u32 %w, %a;
        add.u64 %w, %b0, %w;
        add.u32 %a, %smem, %a;
        cp.async.ca.shared.global [%a], [%w], 4;
        cp.async.mbarrier.arrive.shared.b64 [%bar];
        bar.sync 0;
        @%first mbarrier.arrive.shared.b64 _, [%bar];
        """
        + WAIT
        + "ld.shared.u32 %o0, [%a];",
        outputs=["u32"],
        expected=[SOURCE[:32]],
        buffers=[SOURCE],
        shared=4096,
        **HOPPER,
    ),
    Case(
        "an mbarrier initialised twice",
        init(1) + "@%first mbarrier.init.shared.b64 [%bar], 1;",
        shared=4096,
        fault="initialised again",
        emulator_only=True,
        **HOPPER,
    ),
    Case(
        "an mbarrier never initialised",
        ".reg .b32 %a; mov.u32 %a, memory; mbarrier.arrive.shared.b64 _, [%a];",
        shared=4096,
        fault="was never initialised",
        emulator_only=True,
        **HOPPER,
    ),
    Case(
        "an mbarrier that misses an arrival",
        init(33) + "mbarrier.arrive.shared.b64 _, [%bar];" + WAIT,
        shared=4096,
        fault="1 of 33 arrivals pending",
        emulator_only=True,
        **HOPPER,
    ),
]

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

CASES = [*COPIES, *BARRIERS, *BULK, *REDUCTIONS, *PAIRS, *REGISTERS]
