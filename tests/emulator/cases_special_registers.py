"""Special registers."""

import numpy as np
from cases_moves import LANES, full
from instruction import Case


def special(name, kind, expected, **options):
    bits = {"u32": 32, "u64": 64}.get(kind)
    body = f"mov.{kind if bits else 'pred'} %o0, %{name};"
    return Case(f"%{name}", body, outputs=[kind], expected=[expected], **options)


def axes(block, grid):
    """tid and ctaid by axis, in the order of threads."""
    counts = [*block, *grid]
    total = int(np.prod(counts))
    index, parts = np.arange(total, dtype=np.uint32), []
    for count in counts:
        parts.append(index % np.uint32(count))
        index = index // np.uint32(count)
    return parts


BLOCK, GRID, CLUSTER = (5, 4, 3), (4, 2, 2), (2, 2, 1)
PLACES = axes(BLOCK, GRID)
IN_BLOCK = PLACES[0] + BLOCK[0] * (PLACES[1] + BLOCK[1] * PLACES[2])
SHAPE = {"threads": BLOCK, "grid": GRID}
CLUSTERED = {**SHAPE, "cluster": CLUSTER, "target": "sm_90"}
THREADS = len(IN_BLOCK)
CTAIDS = PLACES[3:]

CASES = [
    *(special(f"tid.{'xyz'[i]}", "u32", PLACES[i], **SHAPE) for i in range(3)),
    *(special(f"ntid.{'xyz'[i]}", "u32", full(BLOCK[i], count=THREADS), **SHAPE) for i in range(3)),
    *(special(f"ctaid.{'xyz'[i]}", "u32", CTAIDS[i], **SHAPE) for i in range(3)),
    *(
        special(f"nctaid.{'xyz'[i]}", "u32", full(GRID[i], count=THREADS), **SHAPE)
        for i in range(3)
    ),
    *(
        special(f"clusterid.{'xyz'[i]}", "u32", CTAIDS[i] // np.uint32(CLUSTER[i]), **CLUSTERED)
        for i in range(3)
    ),
    *(
        special(
            f"nclusterid.{'xyz'[i]}", "u32", full(GRID[i] // CLUSTER[i], count=THREADS), **CLUSTERED
        )
        for i in range(3)
    ),
    *(
        special(f"cluster_ctaid.{'xyz'[i]}", "u32", CTAIDS[i] % np.uint32(CLUSTER[i]), **CLUSTERED)
        for i in range(3)
    ),
    *(
        special(f"cluster_nctaid.{'xyz'[i]}", "u32", full(CLUSTER[i], count=THREADS), **CLUSTERED)
        for i in range(3)
    ),
    special(
        "cluster_ctarank",
        "u32",
        CTAIDS[0] % np.uint32(2) + np.uint32(2) * (CTAIDS[1] % np.uint32(2)),
        **CLUSTERED,
    ),
    special("cluster_nctarank", "u32", full(4, count=THREADS), **CLUSTERED),
    special("is_explicit_cluster", "pred", full(True, np.bool_, THREADS), **CLUSTERED),
    special("laneid", "u32", IN_BLOCK % np.uint32(32), **SHAPE),
    # On hardware the slot of the warp in its multiprocessor.
    special("warpid", "u32", IN_BLOCK // np.uint32(32), emulator_only=True, **SHAPE),
    special("lanemask_eq", "u32", np.uint32(1) << LANES),
    special("lanemask_lt", "u32", (np.uint32(1) << LANES) - np.uint32(1)),
    special("lanemask_le", "u32", ((2 << LANES.astype(np.uint64)) - 1).astype(np.uint32)),
    special("lanemask_gt", "u32", ~((2 << LANES.astype(np.uint64)) - 1).astype(np.uint32)),
    special("lanemask_ge", "u32", ~((np.uint32(1) << LANES) - np.uint32(1))),
    special("dynamic_smem_size", "u32", full(256), dynamic=256),
    Case(
        "%total_smem_size",
        "st.shared.u32 [memory], %thread; mov.u32 %o0, %total_smem_size;",
        outputs=["u32"],
        expected=[full(1280, count=1)],
        threads=1,
        shared=100,
        dynamic=156,
    ),
    Case(
        "not in a cluster",
        "mov.pred %o0, %is_explicit_cluster; mov.u32 %o1, %cluster_nctarank;"
        "mov.u32 %o2, %cluster_ctarank; mov.u32 %o3, %clusterid.x; mov.u32 %o4, %nclusterid.x;",
        outputs=["pred", "u32", "u32", "u32", "u32"],
        expected=[
            full(False, np.bool_, 96),
            full(1, count=96),
            full(0, count=96),
            np.repeat(np.arange(3, dtype=np.uint32), 32),
            full(3, count=96),
        ],
        grid=(3, 1, 1),
        target="sm_90",
    ),
    Case(
        "special registers that differ between machines",
        """.reg .b32 %r, %n; .reg .b64 %c, %d; .reg .pred %p, %q; .reg .b16 %h;
        mov.u32 %r, %smid; mov.u32 %n, %nsmid; setp.lt.u32 %o0, %r, %n;
        mov.u32 %r, %warpid; mov.u32 %n, %nwarpid; setp.lt.u32 %o1, %r, %n;
        mov.u64 %c, %clock64; mov.u64 %d, %clock64; setp.le.u64 %o2, %c, %d;
        mov.u32 %r, %clock; mov.u32 %n, %clock_hi; mov.u64 %c, %gridid;
        mov.u64 %c, %globaltimer; mov.u64 %d, %globaltimer; setp.le.u64 %p, %c, %d;
        setp.ne.u64 %q, %c, 0; and.pred %o3, %p, %q;
        mov.u32 %r, %globaltimer_lo; mov.u32 %n, %globaltimer_hi; setp.ne.u32 %o4, %n, 0;
        mov.u64 %c, %current_graph_exec; setp.eq.u64 %o5, %c, 0;
        mov.u16 %h, %tid.x; cvt.u32.u16 %o6, %h;""",
        outputs=["pred"] * 6 + ["u32"],
        expected=[full(True, np.bool_)] * 6 + [LANES],
        target="sm_80",
    ),
]
