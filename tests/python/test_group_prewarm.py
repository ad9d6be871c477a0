"""kiln.prewarm(group=...): processes with caches of their own, three that gloo joins and, where
there is a GPU for each, two that NCCL joins."""

import json
import os
import subprocess
import sys

import kiln
import pytest
from conftest import ONE_KERNEL
from message_page import check

torch = pytest.importorskip("torch")
RANKS = {"gloo": 3, "nccl": 2}

# Each rank prints what came of each call, and how many kernels it compiled for it.
PROGRAM = """
import hashlib, json, os, sys
import kiln, torch, torch.distributed as dist
from kiln import _core, bundle, group_prewarm

rank, ranks = int(sys.argv[1]), int(sys.argv[2])
spec, backend = json.loads(sys.argv[4]), sys.argv[5]
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
if backend == "nccl":
    torch.cuda.set_device(rank)
dist.init_process_group(backend, init_method="file://" + sys.argv[3], rank=rank, world_size=ranks)
world = dist.group.WORLD

def epilogue(number):
    return {**spec, "epilogue": f"acc + {number}.5f"}

def ask(name, problems, group=world, **options):
    kiln.reset_stats()
    try:
        came = kiln.prewarm(problems, "sm_80", group=group, **options)
    except BaseException as error:
        came = [type(error).__name__, str(error)]
    print(json.dumps({"name": name, "came": came, "compiles": kiln.stats()["compiles"]}))

def another_entry(problem):
    "An entry as another NVRTC would have left it: of the same key, with other bytes."
    key = kiln.prewarm(problem, "sm_80")["kernels"][0]["key"]
    cubin, ptx, text = _core.bundle_entry(key)
    side = json.loads(text)
    del side["check"]
    side["description"]["nvrtc_version"] = "1.0"
    compact = json.dumps(side, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    side["check"] = hashlib.sha256(compact.encode()).hexdigest()
    outcome = _core.store_bundle_entry(key, cubin, ptx, json.dumps(side).encode(), True)
    assert outcome == "imported", outcome

ask("fresh", [epilogue(1), epilogue(2)])
ask("again", [epilogue(1), epilogue(2)])
ask("a broken spec", {"op": "conv"})
ask("a broken kernel", [epilogue(3), {**spec, "epilogue": "acc +* 2"}])
ask("check", epilogue(1), check=True)
if rank == 1:
    another_entry(epilogue(4))
ask("another entry", epilogue(4))

if rank == ranks - 1:
    def fail(*values, **options):
        raise kiln.Error("the disk is full")
    kept, bundle.store = bundle.store, fail
ask("a rank that cannot store", epilogue(5))
if rank == ranks - 1:
    def interrupt(*values, **options):
        raise KeyboardInterrupt
    bundle.store = interrupt
ask("a rank that is interrupted", epilogue(8))
if rank == ranks - 1:
    bundle.store = lambda *values, **options: None
    group_prewarm._digest, digest = lambda keys: bytes(32), group_prewarm._digest
ask("a rank that has another kernel", epilogue(6))
if rank == ranks - 1:
    bundle.store, group_prewarm._digest = kept, digest

part = dist.new_group(list(range(1, ranks)))
if rank != 0:
    ask("a part", epilogue(7), group=part)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module", params=["gloo", "nccl"])
def ranks(request, tmp_path_factory):
    """What each rank told, by the name of the call."""
    count = RANKS[request.param]
    if request.param == "nccl" and torch.cuda.device_count() < count:
        pytest.skip(f"NCCL needs a GPU for each of the {count} ranks")
    folder = tmp_path_factory.mktemp("group")
    arguments = [str(count), str(folder / "meet"), json.dumps(ONE_KERNEL), request.param]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), *arguments],
            env={**os.environ, "KILN_CACHE_DIR": str(folder / f"cache{rank}")},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    told = [run.communicate(timeout=240)[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * count
    facts = [map(json.loads, text.splitlines()) for text in told]
    return [{fact["name"]: fact for fact in one} for one in facts]


def test_the_first_rank_compiles_for_all(ranks):
    reports = [rank["fresh"]["came"] for rank in ranks]
    assert all(report == reports[0] for report in reports)
    assert (reports[0]["total"], reports[0]["compiled"]) == (2, 2)
    assert [rank["fresh"]["compiles"] for rank in ranks] == [2, *(0 for _ in ranks[1:])]


def test_then_all_have_the_kernels(ranks):
    assert {rank["again"]["came"]["cached"] for rank in ranks} == {2}
    assert not any(rank["again"]["compiles"] for rank in ranks)


def test_an_error_of_the_first_rank_is_one_of_all(ranks):
    kinds = [rank["a broken spec"]["came"][0] for rank in ranks]
    assert kinds == ["ValueError", *("Error" for _ in ranks[1:])]
    text = ranks[1]["a broken spec"]["came"][1]
    assert "must be flash_attention, " in text
    check(kiln.Error(text), kiln.Error, "the first rank of the group failed, with ValueError")


def test_a_kernel_that_fails_is_reported_to_all(ranks):
    for rank in ranks:
        report = rank["a broken kernel"]["came"]
        assert (report["compiled"], len(report["failed"])) == (1, 1)


def test_check_is_for_one_process(ranks):
    for rank in ranks:
        kind, text = rank["check"]["came"]
        check(kiln.Error(text), kiln.Error, "give check or group, not both")
        assert kind == "ValueError"


def test_an_entry_with_other_bytes_is_replaced(ranks):
    assert {rank["another entry"]["came"]["compiled"] for rank in ranks} == {1}


def test_a_rank_that_cannot_store_is_named_on_all(ranks):
    for rank in ranks:
        kind, text = rank["a rank that cannot store"]["came"]
        assert kind == "Error" and text.endswith(
            f"kernels: rank {len(ranks) - 1}: Error: the disk is full"
        )
        check(kiln.Error(text), kiln.Error, "not every rank of the group could import the kernels")


def test_a_rank_that_is_interrupted_makes_none_wait(ranks):
    *others, last = [rank["a rank that is interrupted"]["came"] for rank in ranks]
    assert last[0] == "KeyboardInterrupt"
    for kind, text in others:
        assert kind == "Error" and f"rank {len(ranks) - 1}: KeyboardInterrupt" in text


def test_a_rank_that_differs_is_named_on_all(ranks):
    for rank in ranks:
        kind, text = rank["a rank that has another kernel"]["came"]
        assert kind == "Error"
        check(
            kiln.Error(text),
            kiln.Error,
            f"differ from those of its first: {len(ranks) - 1}; give these ranks a",
        )


def test_a_group_of_some_ranks(ranks):
    assert "a part" not in ranks[0]
    assert [rank["a part"]["compiles"] for rank in ranks[1:]] == [1, *(0 for _ in ranks[2:])]
