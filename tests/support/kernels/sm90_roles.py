"""Named barriers and single mbarriers between the roles of a warp-specialised kernel; registers
that groups give each other."""

import numpy as np
from sm90_case import UNORDERED, Boxes, Case, broken, render


def roles(tiles, blocks):
    rng = np.random.default_rng(tiles)
    query, value = rng.integers(0, 1 << 32, (2, max(tiles, 1), 128, 32), np.uint32)
    out = np.full_like(query, 0xABCDABCD)
    # Each block draws one number beyond the last.
    counter = np.zeros(1, np.int32)
    return Case(
        f"roles.tiles{tiles}.blocks{blocks}",
        render("roles", {}),
        [
            Boxes(query, (1, 128, 32), swizzle=0), Boxes(value, (1, 128, 32), swizzle=0),
            Boxes(out, (1, 64, 32), swizzle=0), np.int32(tiles), counter,
        ],
        {2: 3 * query + value if tiles else out, 4: counter + tiles + blocks},
        block=288,
        grid=blocks,
        shared=2 * 128 * 128 + 4 * 8,
    )  # fmt: skip


def turns(rounds):
    order = np.arange(2 * rounds)
    want = np.concatenate([[2 * rounds], order % 2 * 1000 + order // 2]).astype(np.int32)
    return Case(
        f"turns.rounds{rounds}",
        render("turns", {"kRounds": rounds}),
        [np.zeros_like(want)],
        {0: want},
        block=256,
    )


def registers(given, taken):
    values = np.random.default_rng(given).integers(0, 1 << 32, 384 + 160, np.uint32)
    want = values[:384] + 1
    for thread in range(256):
        total = 0
        for value in values[thread : thread + 160]:
            total = (total * 31 + int(value)) % (1 << 32)
        want[thread] = total
    return Case(
        f"registers.give{given}.take{taken}",
        render("registers", {"kGiven": given, "kTaken": taken}),
        [values, np.zeros(384, np.uint32), np.zeros(12, np.uint32)],
        {1: want, 2: np.full(12, 1 + 31 * 256, np.uint32)},
        block=384,
    )


CASES = [
    *(roles(tiles, blocks) for tiles, blocks in ((5, 1), (7, 2), (1, 2), (0, 1))),
    turns(9),
    registers(40, 232),
    registers(24, 240),
]
ROLES, TURNS = CASES[0], CASES[4]

FREED = "arrive_threads<kAll>(kQueryFree);"
WAITED = "    sync_threads<kAll>(kQueryFree);\n"
TAKEN = ("    sync_threads<kAll>(kTaken);\n", "  arrive_threads<kAll>(kTaken);\n")
OUT_FREE = "      wait(at.out_free, (done + 1) & 1);\n"
FENCE = "    fence_async_proxy();\n    sync"

CASES += [
    broken(ROLES, "query_not_free", UNORDERED, (WAITED, ""), (FREED, "")),
    broken(ROLES, "no_arrival_ahead", "deadlock", (f"  {FREED}\n  int", "  int")),
    broken(ROLES, "out_not_free", UNORDERED, (OUT_FREE, "")),
    broken(ROLES, "out_free_unread", UNORDERED, ("      wait_stores_read<0>();\n", "")),
    broken(ROLES, "out_free_same_parity", "deadlock", ("(done + 1) & 1", "done & 1")),
    broken(ROLES, "no_proxy_fence", "fence.proxy.async", (FENCE, "    sync")),
    broken(ROLES, "next_tile_overwritten", UNORDERED, *((text, "") for text in TAKEN)),
    broken(TURNS, "both_at_once", UNORDERED, ("    sync_threads<256>(8 + group);\n", "")),
    # Three groups have 504 registers a thread together: 40 and 240 twice are more.
    broken(registers(40, 240), "over_budget", "register budget: .*240 registers"),
]
