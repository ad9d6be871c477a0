"""Context parallelism: keys of a sequence that are spread over devices, whose parts are merged."""

import dataclasses

import kiln
import pytest
import torch
from case_group import CaseGroup
from context_case import ContextCase
from grid import sized
from kiln import jit
from split_case import DIMS
from storage import DEVICE
from varlen_case import GARBAGE

pytestmark = pytest.mark.usefixtures("compiled", "device")

# Several queries, decode, sequences of fewer keys than devices, of none, and without queries.
LONG = sized(small=500, full=4099)
SEQUENCES = {
    "few": dict(lens_q=(7, 1, 0, 4), lens_k=(LONG, 1, 9, 64), heads=4),
    "decode": dict(lens_q=(1, 1, 1), lens_k=(LONG, 0, 3), heads=8),
    "rows-64": dict(lens_q=(16, 3), lens_k=(300, 33), heads=8),
    "prefill": dict(lens_q=(75, 1, 0, 40), lens_k=(LONG, 70, 9, 33), heads=2),
}
MASKS = {"causal": {}, "window": {"window": (40, 3)}, "alibi": {"alibi": "h", "causal": False}}
WORLDS = [(2, 1), (3, 16), (4, 1), (2, 16)]


def groups():
    """Every head dim with each kind of sequences; masks, storages and worlds take turns."""
    turn = 0
    for dim, dim_v in DIMS:
        for name, sequences in SEQUENCES.items():
            turn += 1
            world, interleave = WORLDS[(turn + turn // 4) % 4]
            case = ContextCase(
                dtype=("bf16", "f16")[turn % 2], head_dim=dim, head_dim_v=dim_v,
                keys=("paged", "packed", "cache")[turn % 3], page=(16, 1, 7)[turn % 3],
                world=world, interleave=interleave, **sequences, **list(MASKS.values())[turn % 3],
            )  # fmt: skip
            yield CaseGroup(f"{name}-d{dim}x{dim_v}", (case,))


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_shapes(group):
    group.check()


@pytest.mark.parametrize("world,interleave", [*WORLDS, (3, 1), (3, 5), (5, 300)])
@pytest.mark.parametrize("mask", list(MASKS))
def test_worlds(world, interleave, mask):
    sequences = SEQUENCES["few"]
    ContextCase(world=world, interleave=interleave, **sequences, **MASKS[mask]).check()


@pytest.mark.parametrize("op,len_q", [("kvcache", 1), ("kvcache", 5), ("varlen", 5)])
@pytest.mark.parametrize("mask", ["causal", "window"])
def test_decoding(op, len_q, mask):
    lengths = dict(lens_q=(len_q,) * 4, lens_k=(LONG, 2, 17, 100), heads=8)
    ContextCase(op=op, world=3, interleave=4, **lengths, **MASKS[mask]).check()


@pytest.mark.parametrize("stored", ["e4m3", "int8"])
def test_quantised_caches(stored):
    case = ContextCase(stored=stored, scales="batch", page=5, world=3, **SEQUENCES["few"])
    case.check()
    dataclasses.replace(case, window=(20, 0), head_dim=128).check()


def test_options():
    options = dict(softcap=5.0, alibi="bh", scale=-0.2, window=(90, 0))
    ContextCase(dtype="f16", world=2, interleave=3, **SEQUENCES["few"], **options).check()


def test_flags_of_causal_sequences():
    ContextCase(causal=(1, 0, 1, 0), world=2, interleave=8, **SEQUENCES["few"]).check()


@pytest.mark.parametrize("interleave", [1, 16])
@pytest.mark.parametrize("len_q", [2, 40])
def test_keys_that_no_row_sees_are_not_read(interleave, len_q):
    """Pages that lie before the window, or behind the last query, need not exist."""
    left, page, length, world = 20, 4, 400, 3
    case = ContextCase(
        lens_q=(len_q,), lens_k=(length,), window=(left, 0), page=page, world=world,
        interleave=interleave,
    )  # fmt: skip
    given = case.inputs()
    for rank in range(world):
        call, own = case.part(given, rank)
        first = int((case.positions(0, rank) < length - len_q - left).sum())
        call.keywords["block_table"][0, : first // page] = GARBAGE
        call.run()
        call.judge(own)


def test_a_variant_sees_positions():
    case = ContextCase(causal=False, world=3, interleave=2, **SEQUENCES["few"])
    given = case.inputs()
    step = jit.Variant("step", logits="logit + 0.01 * (kv - q)", mask="(kv + len_kv) % 3 != 0")
    for rank in range(case.world):
        call, own = case.part(given, rank)
        call.keywords["variant"] = step
        call.run()
        plain = call.options_of

        def options_of(b, rank=rank, plain=plain):
            at_b, total = case.positions(b, rank), case.lens_k[b]

            def logits(logit, at):
                return logit + 0.01 * (at_b[at.kv] - (at.row + total - at.len_q))

            def mask(at):
                return ((at_b[at.kv] + total) % 3 != 0) & (at.row >= 0)

            return {**plain(b), "logits": logits, "mask": mask}

        call.options_of = options_of
        call.judge(own)


def test_without_positions_the_kernel_is_the_usual_one():
    """One causal query sees all keys of all devices."""
    lengths = dict(lens_q=(1, 1), lens_k=(300, 41), heads=8)
    for options in (dict(causal=True), dict(causal=False)):
        case = ContextCase(world=2, **lengths, **options)
        call, _ = case.part(case.inputs(), 1)
        assert not call.explain()["spec"]["context_parallel"]
    case = ContextCase(world=2, **lengths, window=(9, 0))
    call, _ = case.part(case.inputs(), 1)
    with kiln.device("emulator:sm_90a"):
        told = call.explain()
    assert told["spec"]["context_parallel"] and told["path"] == "varlen"
    assert told["why"][0].endswith(": the keys of a sequence are spread over devices")


def test_without_splits_a_sequence_does_not_depend_on_others():
    case = ContextCase(num_splits=1, lens_q=(9, 30), lens_k=(LONG, 333), heads=2, world=2)
    given = case.inputs()
    call, _ = case.part(given, 1)
    call.run()
    for b in range(2):
        alone = dataclasses.replace(case, lens_q=case.lens_q[b:][:1], lens_k=case.lens_k[b:][:1])
        single, _ = alone.part(given[b : b + 1], 1)
        single.run()
        assert torch.equal(single.queries(single.out.view, 0), call.queries(call.out.view, b))


def test_a_tree_beside_spread_keys():
    """Its bits are of positions, too: a chain is a causal mask."""
    case = ContextCase(world=2, lens_q=(6, 3), lens_k=(200, 31))
    given = case.inputs()
    for rank in range(2):
        call, own = case.part(given, rank)
        chain = (torch.tensor(2) << torch.arange(len(call.q), device=DEVICE)) - 1
        words = torch.zeros_like(chain)
        for b in range(2):
            call.queries(words, b).copy_(chain[: case.lens_q[b]])
        call.keywords.update(tree_mask=words, causal=False)
        call.run()
        call.judge(own)
