"""Rings of stages: many rounds with few stages, groups that skip each other's tiles, tiles of no
blocks, no tiles at all; clusters that share what they load."""

import dataclasses
import zlib

import numpy as np
from sm90_case import UNORDERED, Boxes, Case, broken, render

BOX = (1, 8, 32)  # a KB of 32-bit words


@dataclasses.dataclass(frozen=True)
class RingOf:
    stages: int
    k_blocks: tuple  # of each tile
    groups: int = 1
    ping_pong: bool = False
    cluster: int = 1
    clusters: int = 1

    @property
    def name(self):
        parts = [f"ring.stages{self.stages}", f"groups{self.groups}"]
        parts += ["ping_pong"] * self.ping_pong + [f"cluster{self.cluster}"] * (self.cluster > 1)
        parts += [f"clusters{self.clusters}"] * (self.clusters > 1)
        return ".".join([*parts, "blocks" + "_".join(map(str, self.k_blocks))])

    def case(self):
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        tiles, deepest = len(self.k_blocks), max(self.k_blocks, default=0)
        size = (max(tiles, 1) * self.cluster, max(deepest, 1) * 8, 32)
        own = rng.integers(0, 1 << 32, size, np.uint32)
        size = (max(tiles, 1), max(deepest, 1) * 8 * self.cluster, 32)
        shared = rng.integers(0, 1 << 32, size, np.uint32)
        boxes = 1 if self.cluster == 1 else 1 + self.cluster
        out = np.full((max(tiles, 1), self.cluster, boxes * 256), 0xABCDABCD, np.uint32)
        want = out.copy()
        for tile, count in enumerate(self.k_blocks):
            number = np.arange(1, count + 1, dtype=np.uint32)[:, None]
            for rank in range(self.cluster):
                blocks = [own[tile * self.cluster + rank, : count * 8].reshape(count, 256)]
                if self.cluster > 1:
                    part = shared[tile, : count * 8 * self.cluster]
                    blocks.append(part.reshape(count, self.cluster * 256))
                stage = np.concatenate(blocks, axis=1)
                want[tile, rank] = (stage * number).sum(0, dtype=np.uint32)
        constants = {
            "kStages": self.stages, "kCluster": self.cluster, "kGroups": self.groups,
            "kPingPong": self.ping_pong,
        }  # fmt: skip
        counts = np.array([*self.k_blocks, 0], np.int32)
        maps = [Boxes(own, BOX, swizzle=0), Boxes(shared, BOX, swizzle=0)]
        return Case(
            self.name,
            render("ring", constants),
            [*maps, counts, np.int32(tiles), out],
            {4: want},
            block=self.groups * 128 + 32,
            grid=self.cluster * self.clusters,
            cluster=self.cluster,
            shared=self.stages * (boxes * 1024 + 16),
        )


def multicast(*masks):
    """CTA i sends its box to those whose bits are set in the i-th mask."""
    count = len(masks)
    name = f"multicast.masks{'_'.join(map(str, masks))}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    array = rng.integers(0, 1 << 32, (1, 8 * count, 32), np.uint32)
    want = np.full((count, count, 256), 0x5A5A5A5A, np.uint32)
    for sender, mask in enumerate(masks):
        for receiver in range(count):
            if mask >> receiver & 1:
                want[receiver, sender] = array[0, sender * 8 : sender * 8 + 8].reshape(-1)
    return Case(
        name,
        render("multicast", {"kCluster": count}),
        [Boxes(array, BOX, swizzle=0), np.array(masks, np.int32), np.zeros_like(want)],
        {2: want},
        grid=count,
        cluster=count,
        shared=count * 1024 + 16,
    )


def gather(stages, steps, rows=16):
    """A row of -1 is none: zeros."""
    name = f"gather.stages{stages}.steps{steps}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    table = rng.integers(0, 1 << 32, (40, 32), np.uint32)
    chosen = rng.integers(-1, 40, steps * rows).astype(np.int32)
    want = np.where(chosen[:, None] < 0, np.uint32(0), table[chosen])[None]
    return Case(
        name,
        render("gather", {"kStages": stages, "kRows": rows}),
        [Boxes(np.full_like(want, 7), (1, rows, 32)), table, chosen, np.int32(steps)],
        {0: want},
        block=96,
        shared=stages * (rows * 128 + 16),
    )


def positions(stages, count=32):
    side, start, steps = np.meshgrid(
        [0, 1], np.arange(stages), np.arange(count), indexing="ij", sparse=False
    )
    end = start + steps
    place = np.stack([end % stages, side ^ (end // stages & 1)], -1)
    want = np.concatenate([place, place], -1).astype(np.uint32).reshape(-1)
    return Case(
        f"positions.stages{stages}",
        render("positions", {"kStages": stages}),
        [np.zeros_like(want), np.int32(count)],
        {0: want},
        block=32,
    )


CASES = [
    *(positions(stages) for stages in (1, 2, 3, 4, 7)),
    multicast(0b11, 0b11),
    multicast(0b10, 0b01),  # each to the other alone
    multicast(0b0101, 0b1010, 0b0101, 0b1010),
    multicast(0b1110, 0b0001, 0b1111, 0b0100),
    gather(1, 3),
    gather(3, 11),
    RingOf(1, (5,)).case(),
    RingOf(2, (11, 1, 4)).case(),
    RingOf(3, (7, 0, 0, 5, 3), groups=2).case(),
    RingOf(4, ()).case(),
    RingOf(4, (0,), groups=2).case(),
    RingOf(3, (2, 9, 4, 7, 1), groups=2, ping_pong=True).case(),
    RingOf(2, (5, 0, 3, 3), groups=2, ping_pong=True).case(),
    RingOf(4, (6,), groups=2, ping_pong=True).case(),  # the second group has nothing
    RingOf(3, (4, 5, 6, 2), groups=2, clusters=3).case(),
    RingOf(2, (7, 3), groups=2, cluster=2).case(),
    RingOf(3, (5, 0, 4, 8), groups=2, ping_pong=True, cluster=2).case(),
    RingOf(3, (4, 6, 1), cluster=2, clusters=2).case(),
    RingOf(2, (5, 4), cluster=4).case(),
    RingOf(3, (6, 1, 3), groups=2, ping_pong=True, cluster=4).case(),
    RingOf(2, (), groups=2, cluster=2).case(),
]
BY_NAME = {case.name: case for case in CASES}
PLAIN = BY_NAME["ring.stages2.groups1.blocks11_1_4"]
TURNS = BY_NAME["ring.stages3.groups2.ping_pong.blocks2_9_4_7_1"]
CLUSTER = BY_NAME["ring.stages2.groups2.cluster2.blocks7_3"]
PAIRS = BY_NAME["multicast.masks5_10_5_10"]
GATHERED = BY_NAME["gather.stages3.steps11"]
AFTER = "arrive_after_copies(ring.full(position.stage))"
FULL = "      wait(ring.full(position.stage), position.parity);\n"
EMPTY = "      wait(ring.empty(position.stage), position.parity);\n"
TURN = "    if constexpr (kPingPong) wait_for_turn(group);\n"
OWN = "if (lane == 0) arrive(empty)"
ALONE = "    __syncthreads();\n  }\n"
STARTED, ENDED = "    sync_cluster();\n  }\n", "  if constexpr (kCluster > 1) sync_cluster();\n}"

CASES += [
    broken(
        GATHERED,
        "arrives_before_its_copies",
        UNORDERED,
        (AFTER, "arrive(ring.full(position.stage))"),
    ),
    broken(GATHERED, "read_without_a_fence", "proxy", ("    fence_async_proxy();\n", "")),
    broken(
        GATHERED,
        "not_read_before_it_is_given_back",
        UNORDERED,
        ("    wait_stores_read<0>();\n", ""),
    ),
    broken(PLAIN, "full_not_waited_for", UNORDERED, (FULL, "")),
    broken(PLAIN, "empty_not_waited_for", UNORDERED, (EMPTY, "")),
    broken(PLAIN, "producer_at_parity_0", "deadlock", ("ring.producer()", "ring.consumer()")),
    broken(PLAIN, "consumer_at_parity_1", UNORDERED, ("ring.consumer()", "ring.producer()")),
    broken(PLAIN, "one_arrival_too_many", UNORDERED, ("kSharers * 4", "kSharers * 3")),
    broken(PLAIN, "one_arrival_too_few", "deadlock", ("kSharers * 4", "kSharers * 5")),
    broken(TURNS, "tiles_not_skipped", UNORDERED, ("position.advance_by(k_blocks);", "")),
    broken(TURNS, "out_of_turn", UNORDERED, (TURN, "")),
    broken(PAIRS, "arrives_at_itself", UNORDERED, ("(rank + 1) % kCluster", "rank")),
    broken(PAIRS, "sends_to_all", UNORDERED, ("u16(masks[rank])", "15")),
    broken(CLUSTER, "arrives_at_its_own_only", "deadlock", ("arrive_at(empty, lane)", OWN)),
    broken(CLUSTER, "counts_its_own_only", UNORDERED, ("* 4 * kCluster", "* 4")),
    broken(CLUSTER, "ends_without_the_others", UNORDERED, (ENDED, "}")),
    broken(CLUSTER, "starts_without_the_others", UNORDERED, (STARTED, ALONE)),
]
