"""cp.async and mbarriers."""

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
        # ptxas 13.0 keeps a shared address that is the sum of a register and of the array's
        # address apart, and sm_90 refuses such a copy as an illegal instruction when it names a
        # policy. Through shfl the address is one register.
        """shfl.sync.idx.b32 %a, %a, %thread, 31, 0xffffffff;
        createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
        cp.async.cg.shared.global.L2::cache_hint.L2::128B [%a], [%g], 16, %policy;""",
        rows(SOURCE, 4),
        version="7.4",
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

CASES = [*COPIES, *BARRIERS]
