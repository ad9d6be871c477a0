"""shfl, vote, match, redux, activemask, elect: the lanes of a warp together."""

import numpy as np
from instruction import Case

RANDOM = np.random.default_rng(22)
LANES = np.arange(32, dtype=np.uint32)
WORDS = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
LONGS = RANDOM.integers(0, 1 << 64, 32, dtype=np.uint64)
FLAGS = RANDOM.integers(0, 2, 32).astype(np.bool_)
FULL = 0xFFFFFFFF


def bits_of(flags):
    return sum(1 << i for i, flag in enumerate(flags) if flag)


def shuffled(mode, values, offsets, bounds):
    """Each lane's result and whether its source was in range."""
    result, inside = values.copy(), np.zeros(32, np.bool_)
    for lane in range(32):
        offset, clamp = int(offsets[lane]) & 31, int(bounds[lane]) & 31
        segment = int(bounds[lane]) >> 8 & 31
        bound = (lane & segment) | (clamp & ~segment)
        source = {
            "up": lane - offset,
            "down": lane + offset,
            "bfly": lane ^ offset,
            "idx": (lane & segment) | (offset & ~segment),
        }[mode]
        inside[lane] = source >= bound if mode == "up" else source <= bound
        result[lane] = values[source if inside[lane] else lane]
    return result, inside


def shuffle_cases():
    widths = [(32, 0), (16, 0x1000), (8, 0x1800), (4, 0x1C00), (2, 0x1E00), (1, 0x1F00)]
    for mode in ("up", "down", "bfly", "idx"):
        lines, expected = [], []
        for _, segment in widths:
            bounds = segment | (0 if mode == "up" else 0x1F)
            for offset in (0, 1, 5, 31):
                at = len(expected)
                lines.append(
                    f"shfl.sync.{mode}.b32 %o{at}|%o{at + 1}, %i0, {offset}, {bounds}, -1;"
                )
                expected += shuffled(mode, WORDS, [offset] * 32, [bounds] * 32)
        for part in range(0, len(expected), 16):
            body = " ".join(lines[part // 2 : part // 2 + 8])
            for i in range(16):
                body = body.replace(f"%o{part + i}|", f"%O{i}|").replace(
                    f"|%o{part + i},", f"|%O{i},"
                )
            yield Case(
                f"shfl.sync.{mode} {part // 16}",
                body.replace("%O", "%o"),
                [WORDS],
                ["b32", "pred"] * 8,
                expected[part : part + 16],
            )
        offsets = RANDOM.integers(0, 64, 32, dtype=np.uint32)
        bounds = np.full(32, 0 if mode == "up" else 0x1F, np.uint32)
        value, inside = shuffled(mode, WORDS, offsets, bounds)
        yield Case(
            f"shfl.sync.{mode} by registers",
            f"shfl.sync.{mode}.b32 %o0|%o1, %i0, %i1, %i2, %i3;"
            f"shfl.sync.{mode}.b32 %o2, %i0, %i1, %i2, %i3;",
            [WORDS, offsets, bounds, np.full(32, FULL, np.uint32)],
            ["b32", "pred", "b32"],
            [value, inside, value],
        )


LOW, HIGH = LANES < 16, LANES >= 16
SHUFFLES = [
    *shuffle_cases(),
    Case(
        "shfl.sync in place, a sum over the warp",
        """mov.b32 %o0, %i0; .reg .b32 %t;
        shfl.sync.bfly.b32 %t, %o0, 16, 31, -1; add.u32 %o0, %o0, %t;
        shfl.sync.bfly.b32 %t, %o0, 8, 31, -1; add.u32 %o0, %o0, %t;
        shfl.sync.bfly.b32 %t, %o0, 4, 31, -1; add.u32 %o0, %o0, %t;
        shfl.sync.bfly.b32 %t, %o0, 2, 31, -1; add.u32 %o0, %o0, %t;
        shfl.sync.bfly.b32 %t, %o0, 1, 31, -1; add.u32 %o0, %o0, %t;
        shfl.sync.idx.b32 %o0, %o0, 0, 31, -1;""",
        [WORDS],
        ["u32"],
        [np.full(32, WORDS.sum(dtype=np.uint64) & np.uint64(FULL)).astype(np.uint32)],
    ),
    Case(
        "shfl.sync of half a warp",
        """mov.b32 %o0, 0; .reg .pred %p; setp.ge.u32 %p, %thread, 16; @%p bra DONE;
        shfl.sync.bfly.b32 %o0, %i0, 3, 31, 0xffff;
        DONE:""",
        [WORDS],
        ["b32"],
        [np.where(LOW, WORDS[LANES ^ 3], 0).astype(np.uint32)],
    ),
    Case(
        "shfl.sync of two halves in two branches",
        """.reg .pred %p; setp.ge.u32 %p, %thread, 16; @%p bra UPPER;
        shfl.sync.bfly.b32 %o0, %i0, 1, 31, 0xffff; bra DONE;
        UPPER: shfl.sync.bfly.b32 %o0, %i0, 2, 31, 0xffff0000;
        DONE:""",
        [WORDS],
        ["b32"],
        [np.where(LOW, WORDS[LANES ^ 1], WORDS[LANES ^ 2])],
    ),
    Case(
        "shfl.sync of two halves in one instruction",
        """.reg .pred %p; .reg .b32 %m; setp.ge.u32 %p, %thread, 16;
        selp.b32 %m, 0xffff0000, 0x0000ffff, %p; shfl.sync.bfly.b32 %o0, %i0, 5, 31, %m;""",
        [WORDS],
        ["b32"],
        [WORDS[LANES ^ 5]],
    ),
    Case(
        "shfl.sync waits for lanes that come later",
        """.reg .pred %p, %q; .reg .b32 %n; and.b32 %n, %thread, 7; mov.b32 %o1, 0;
        LOOP: setp.eq.u32 %p, %n, 0; @%p bra DONE; add.u32 %o1, %o1, 3; sub.u32 %n, %n, 1;
        bra LOOP;
        DONE: bar.warp.sync -1; shfl.sync.down.b32 %o0, %o1, 1, 31, -1;""",
        outputs=["u32", "u32"],
        expected=[
            np.append(3 * (LANES[1:] % 8), 21).astype(np.uint32),
            (3 * (LANES % 8)).astype(np.uint32),
        ],
    ),
    Case(
        "shfl.sync in a block of 48 threads, exited lanes left out",
        """.reg .pred %p; setp.ge.u32 %p, %thread, 32; mov.b32 %o0, 9; @%p bra UPPER;
        shfl.sync.idx.b32 %o0, %i0, 7, 31, -1; bra DONE;
        UPPER: shfl.sync.idx.b32 %o0, %i0, 7, 31, 0xffff;
        DONE:""",
        [np.arange(48, dtype=np.uint32)],
        ["u32"],
        [np.repeat(np.array([7, 39], np.uint32), [32, 16])],
        threads=48,
    ),
    Case(
        "shfl.sync by a lane outside its mask",
        "shfl.sync.idx.b32 %o0, %thread, 0, 31, 0x7fffffff;",
        outputs=["b32"],
        fault="not in its member mask",
    ),
    Case(
        "shfl.sync whose guard leaves members out",
        "mov.b32 %o0, 0; @%i0 shfl.sync.idx.b32 %o0, %thread, 0, 31, -1;",
        [LOW],
        ["b32"],
        fault="do not execute it",
    ),
    Case(
        "shfl.sync that half of the warp never reaches",
        """.reg .pred %p; setp.lt.u32 %p, %thread, 16; mov.b32 %o0, 1; @%p bra DONE;
        shfl.sync.idx.b32 %o0, %thread, 0, 31, -1;
        DONE: bar.sync 0;""",
        outputs=["b32"],
        fault="deadlock",
    ),
    Case(
        "shfl without .sync",
        "shfl.idx.b32 %o0, %thread, 0, 31;",
        outputs=["b32"],
        fault="shfl.idx.b32",
    ),
]


def vote_expected(flags):
    return [
        np.full(32, flags.all()),
        np.full(32, flags.any()),
        np.full(32, flags.all() or not flags.any()),
        np.full(32, bits_of(flags), np.uint32),
        np.full(32, (~flags).all()),
        np.full(32, bits_of(~flags), np.uint32),
    ]


VOTE = """vote.sync.all.pred %o0, %i0, -1; vote.sync.any.pred %o1, %i0, -1;
vote.sync.uni.pred %o2, %i0, -1; vote.sync.ballot.b32 %o3, %i0, -1;
vote.sync.all.pred %o4, !%i0, -1; vote.sync.ballot.b32 %o5, !%i0, -1;"""
ONE = LANES == 13
VOTES = [
    *(
        Case(
            f"vote.sync of {name}",
            VOTE,
            [flags],
            ["pred", "pred", "pred", "u32", "pred", "u32"],
            vote_expected(flags),
        )
        for name, flags in (
            ("some", FLAGS),
            ("all", LANES < 32),
            ("none", LANES > 32),
            ("one", ONE),
            ("all but one", ~ONE),
        )
    ),
    Case(
        "vote.sync of members",
        """mov.b32 %o0, 0; mov.pred %o1, %i1; @%i1 bra DONE;
        vote.sync.ballot.b32 %o0, %i0, %i2; vote.sync.all.pred %o1, %i0, %i2;
        DONE:""",
        [FLAGS | (LANES % 2 == 0), LANES % 2 == 1, np.full(32, 0x55555555, np.uint32)],
        ["u32", "pred"],
        [
            np.where(LANES % 2 == 0, 0x55555555, 0).astype(np.uint32),
            np.full(32, True),
        ],
    ),
    Case(
        "activemask",
        """.reg .pred %p; setp.lt.u32 %p, %thread, 10; mov.b32 %o0, 0; @!%p bra DONE;
        activemask.b32 %o0;
        DONE: bar.warp.sync -1; activemask.b32 %o1;""",
        outputs=["u32", "u32"],
        expected=[np.where(LANES < 10, 0x3FF, 0).astype(np.uint32), np.full(32, FULL, np.uint32)],
    ),
]

KEYS = RANDOM.integers(0, 5, 32).astype(np.uint32) * np.uint32(0x10001)
LONG_KEYS = KEYS.astype(np.uint64) << np.uint64(40) | np.uint64(7)


def equals(keys, lanes=LANES):
    table = [bits_of([keys[i] == keys[j] and i in lanes for i in range(32)]) for j in range(32)]
    return np.array([table[j] if j in lanes else 0 for j in range(32)], np.uint32)


MATCHES = [
    Case(
        "match.any.sync",
        "match.any.sync.b32 %o0, %i0, -1; match.any.sync.b64 %o1, %i1, -1;",
        [KEYS, LONG_KEYS],
        ["u32", "u32"],
        [equals(KEYS), equals(KEYS)],
    ),
    Case(
        "match.any.sync of members",
        "mov.b32 %o0, 0; @%i1 bra DONE; match.any.sync.b32 %o0, %i0, 0x0f0f0f0f;\nDONE:",
        [KEYS, LANES // 4 % 2 == 1],
        ["u32"],
        [equals(KEYS, [i for i in range(32) if i // 4 % 2 == 0])],
    ),
    Case(
        "match.all.sync",
        """match.all.sync.b32 %o0|%o1, %i0, -1; match.all.sync.b32 %o2|%o3, 5, -1;
        match.all.sync.b64 %o4|%o5, %i1, -1; match.all.sync.b64 %o6, 6, -1;""",
        [KEYS, LONG_KEYS],
        ["u32", "pred", "u32", "pred", "u32", "pred", "u32"],
        [
            np.zeros(32, np.uint32),
            np.full(32, False),
            np.full(32, FULL, np.uint32),
            np.full(32, True),
            np.zeros(32, np.uint32),
            np.full(32, False),
            np.full(32, FULL, np.uint32),
        ],
    ),
]


def reduced(values, lanes):
    unsigned, signed = values[lanes], values[lanes].view(np.int32)
    total = int(unsigned.sum(dtype=np.uint64)) & FULL
    return [
        total,
        total,
        unsigned.min(),
        unsigned.max(),
        np.uint32(int(signed.min()) & FULL),
        np.uint32(int(signed.max()) & FULL),
        np.bitwise_and.reduce(unsigned),
        np.bitwise_or.reduce(unsigned),
        np.bitwise_xor.reduce(unsigned),
    ]


REDUCTIONS = ["add.u32", "add.s32", "min.u32", "max.u32", "min.s32", "max.s32"]
REDUCTIONS = [f"redux.sync.{name}" for name in REDUCTIONS]
REDUCTIONS += [f"redux.sync.{name}.b32" for name in ("and", "or", "xor")]
SPARSE = WORDS & RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32) | np.uint32(0x10)
EVEN = LANES % 2 == 0
REDUX = [
    Case(
        "redux.sync",
        " ".join(f"{name} %o{i}, %i0, -1;" for i, name in enumerate(REDUCTIONS)),
        [values],
        ["u32"] * 9,
        [np.full(32, v, np.uint32) for v in reduced(values, LANES < 32)],
    )
    for values in (SPARSE,)
]
REDUX += [
    Case(
        "redux.sync of two sets of members",
        """.reg .pred %p; .reg .b32 %n, %m; and.b32 %n, %thread, 1; setp.eq.u32 %p, %n, 0;
        @!%p bra ODD;
        """
        + " ".join(f"{name} %o{i}, %i0, 0x55555555;" for i, name in enumerate(REDUCTIONS))
        + "\nbra DONE;\nODD:\n"
        + " ".join(f"{name} %o{i}, %i0, 0xaaaaaaaa;" for i, name in enumerate(REDUCTIONS))
        + "\nDONE:",
        [SPARSE],
        ["u32"] * 9,
        [
            np.where(EVEN, even, odd).astype(np.uint32)
            for even, odd in zip(reduced(SPARSE, EVEN), reduced(SPARSE, ~EVEN))
        ],
    ),
]

MEMBERS = np.array([(0xFFF0FF00 >> int(lane)) & 1 for lane in LANES], np.bool_)
ELECTIONS = [
    Case(
        "elect.sync",
        "elect.sync %o0|%o1, -1; elect.sync _|%o2, -1;",
        outputs=["u32", "pred", "pred"],
        expected=[np.zeros(32, np.uint32), LANES == 0, LANES == 0],
        target="sm_90",
    ),
    Case(
        "elect.sync of members",
        """mov.b32 %o0, 99; mov.pred %o1, %i0; @!%i0 bra DONE;
    elect.sync %o0|%o1, 0xfff0ff00;
    DONE:""",
        [MEMBERS],
        ["u32", "pred"],
        [np.where(MEMBERS, 8, 99).astype(np.uint32), LANES == 8],
        target="sm_90",
    ),
]

CASES = [*SHUFFLES, *VOTES, *MATCHES, *REDUX, *ELECTIONS]
