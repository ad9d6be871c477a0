"""One of two processes that share the paged cache of a decode, and exchange out and lse."""

import contextlib
import datetime

import grid
import torch
import torch.distributed as dist

WORLD = 2
LENS_K = (37, 3, 70)  # the second sequence has no keys on rank 1
PAGE = 4
CALLS = {
    "decode": dict(op="kvcache", lens_q=(1, 1, 1)),
    "few queries": dict(op="varlen", lens_q=(3, 1, 4)),
}


def compare(rank, device, meeting):
    """Raises AssertionError unless the ranks' results merge to those of the whole cache.

    device: "cuda", with NCCL, or "emulator", with gloo. meeting: a file that does not exist,
    through which the processes find each other."""
    grid.choose(device)  # before the imports of what places tensors
    if device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=f"file://{meeting}", rank=rank,
        world_size=WORLD, timeout=datetime.timedelta(minutes=3),
    )  # fmt: skip
    emulated = contextlib.nullcontext() if device == "cuda" else grid.Order("eager", 0).on()
    try:
        with emulated:
            compare_cases(rank)
    finally:
        dist.destroy_process_group()


def compare_cases(rank):
    from context_case import ContextCase
    from halves_case import HalvesCase

    for options in CALLS.values():
        shared = dict(**options, lens_k=LENS_K, page=PAGE, world=WORLD)
        for case in (HalvesCase(**shared), ContextCase(**shared, interleave=PAGE)):
            assert len(case.positions(1, 1)) == 0
            compare_case(case, rank)


def compare_case(case, rank):
    """The queries are the same on both ranks, as one seed decides them."""
    from compare import check_lse
    from kiln import jit

    given = case.inputs()
    part, _ = case.part(given, rank)
    part.run()
    out, lse = state_of(part)
    outs, lses = gathered(out), gathered(lse)
    layout = "th" if case.op == "kvcache" else "ht"
    out, lse = jit.merge_states(outs, lses, layout=layout, return_lse=True)
    assert torch.equal(*gathered(out)) and torch.equal(*gathered(lse)), "the ranks differ"

    whole = case.call(given)
    whole.run()
    whole_out, whole_lse = state_of(whole)
    torch.testing.assert_close(out, whole_out, atol=2e-2, rtol=2e-2)
    check_lse(lse, whole_lse, what=f"{case}, merged")
    put_back(whole, out, lse)
    whole.judge(given)


def state_of(call):
    """out [tokens, heads, head_dim]; lse [tokens, heads] of a decode, else [heads, tokens]."""
    if call.case.op == "kvcache":
        return call.out.view.flatten(0, 1), call.lse.mT.flatten(0, 1)
    tokens = sum(call.case.lens_q)
    return call.out.view[:tokens], call.lse[:, :tokens]


def put_back(call, out, lse):
    """Gives the call's tensors another state, for its judgement."""
    if call.case.op == "kvcache":
        call.out.view.copy_(out.view(call.out.view.shape))
        call.lse.copy_(lse.view(call.lse.mT.shape).mT)
    else:
        tokens = len(out)
        call.out.view[:tokens], call.lse[:, :tokens] = out, lse


def gathered(x):
    """[ranks, ..]: what each rank has."""
    parts = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(WORLD)]
    dist.all_gather(parts, x.contiguous())
    return torch.stack(parts)
