"""Built-in kernels of every config row of every arch through NVRTC: no spill, no local memory, no
ptxas complaint, no main loop of wgmma that ptxas takes for divergent, no prefetch of a tensor map
that is chosen at run time, no long runs without a yield in attention for Hopper.

For each row every value of every property that occurs with it, but for rows, values and archs that
take turns, and a sample of the other kernels, which KILN_TEST_SEED decides; with KILN_TEST_FULL=1
(or --full) all of them. The list is that of tests/support/kernel_list.h, which the tests on the
emulated device take too.
"""

import functools
import json
import os
import pathlib
import subprocess

import kiln
import pytest
from machine_code import (
    ADD,
    MULTIPLY,
    MULTIPLY_ADD,
    divergent_branches_among_products,
    longest_stay,
)
from prefetched_maps import maps_chosen_at_run_time

ROOT = pathlib.Path(__file__).parents[2]
# Largest shared memory of a CTA, in KiB.
SHARED_LIMITS = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}
NORM_TILE = ("threads", "vectors", "rows_per_block", "cluster", "launch")
TILE = {
    "flash_attention": ("block_q", "block_kv", "warps", "stages", "splits"),
    "gemm": ("block_m", "block_n", "block_k", "stages", "cluster", "splits"),
    "rms_norm": NORM_TILE,
    "layer_norm": NORM_TILE,
    "merge_states": ("lanes", "vectors", "parts"),
    "append_kv": ("rows",),
    "moe_route": ("experts",),
    "moe_permute": ("launch",),
    "moe_unpermute": (),
    "quantize": ("lanes", "vectors", "cluster", "turns"),
    "plan_attention": ("pieces",),
    "bound_elements": (),
    "copy_keys": (),
}
# How many instructions of a kind a warp of Hopper's attention runs without a yield, at most, in
# kernels whose time the tensor cores do not fill.
LONGEST_STAYS = {MULTIPLY_ADD: 1, MULTIPLY: 1, ADD: 3}


@functools.cache
def kernel_list(arch):
    """The cover, the sample, and what is tested of an arch: lists of specs."""
    builds = [ROOT / "build" / name / "tests/helper_kernels" for name in ("gpu", "dev")]
    builds = [path for path in builds if path.exists()]
    assert builds, "no build with C++ tests in build/: run make build or scripts/gpu.sh first"
    done = subprocess.run([builds[0], arch], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def takes_turns(op, name, value):
    """Whether the seed decides which rows have this value."""
    if op != "flash_attention" or value is None:
        return False
    if name in ("head_dim", "head_dim_v"):
        return value % 64 != 0
    return name in ("attn_mask", "cache_dtype", "sinks")


def pairs(spec, waits):
    """Of its tile and each property. Families that share their tiles share templates."""
    names = TILE[spec["op"]]
    tile = (names, *(spec.get(name) for name in names))
    for name, value in spec.items():
        if name == "op" or not (waits or takes_turns(spec["op"], name, value)):
            yield (*tile, name, json.dumps(value))


def all_pairs(specs, waits, rests):
    """The pairs of kernels; of each it is told whether its row waits for its turn, and has none."""
    rows = zip(specs, waits, rests, strict=True)
    return {pair for spec, waiting, none in rows if not none for pair in pairs(spec, waiting)}


def texts(specs):
    return [json.dumps(spec, sort_keys=True) for spec in specs]


@pytest.mark.parametrize("arch", SHARED_LIMITS)
def test_the_choice_covers_every_row_with_every_property(arch):
    everything, chosen = kiln.enumerate_specs(arch), kernel_list(arch)
    assert len(everything) > 100
    waits = chosen["waits"]
    no = [False] * len(chosen["cover"])
    assert all_pairs(chosen["cover"], no, no) >= all_pairs(everything, waits, chosen["rests"])
    assert set(chosen["rests"]) == ({False} if arch == "sm_90" else {False, True})
    assert set(waits) == {False, True}
    tested = texts(chosen["tested"])
    assert len(set(tested)) == len(tested)
    if os.environ.get("KILN_TEST_FULL") == "1":
        assert sorted(tested) == sorted(texts(everything))
    else:
        assert tested == texts(chosen["cover"]) + texts(chosen["sample"])
        assert set(tested) < set(texts(everything))


@pytest.mark.parametrize("arch", SHARED_LIMITS)
def test_every_row_compiles_clean(arch):
    nvrtc = kiln.diagnose()["nvrtc"]
    if int(arch.removeprefix("sm_")) not in nvrtc["archs"]:
        pytest.skip(f"NVRTC {nvrtc['version']} does not know {arch}")
    report = kiln.prewarm(kernel_list(arch)["tested"], arch)
    assert report["failed"] == []
    assert report["compiled"] + report["cached"] == report["total"] > 0
    faults = [fault for kernel in report["kernels"] for fault in faults_of(kernel["spec"], arch)]
    assert not faults, "\n".join(faults)


def faults_of(spec, arch):
    (kernel,) = kiln.inspect(spec, arch)
    assert kernel["cached"], f"{kernel['what']} was compiled twice"
    shared = kernel["dynamic_shared_bytes"] + kernel["shared_bytes"]
    chosen = maps_chosen_at_run_time(kernel["ptx"])
    divergent, stays = 0, []
    if kernel["path"] == "sm_90a":
        divergent = divergent_branches_among_products(kernel["cubin"])
        stays = long_stays(kernel)
    found = {
        f"{kernel['spill_bytes']} bytes spilled": kernel["spill_bytes"] > 0,
        f"{kernel['local_bytes']} bytes of local memory": kernel["local_bytes"] > 0,
        f"warnings {kernel['warnings']}": kernel["warnings"] != [],
        f"{shared} bytes of shared memory": shared > SHARED_LIMITS[arch] * 1024,
        f"{divergent} divergent branches among the products": divergent > 0,
        f"{stays} instructions in a row without a yield": stays != [],
        f"{chosen} prefetches of tensor maps chosen at run time": chosen > 0,
        f"{kernel['registers']} registers": not 0 < kernel["registers"] <= 255,
    }
    return [f"{arch}, {kernel['what']}: {text}" for text, bad in found.items() if bad]


def long_stays(kernel):
    spec = kernel["spec"]
    if spec["op"] != "flash_attention" or spec["attn_mask"] is not None:
        return []
    if max(spec["head_dim"], spec["head_dim_v"] or 0) > 64:
        return []
    counts = {kind: longest_stay(kernel["cubin"], kind) for kind in LONGEST_STAYS}
    return [counts[kind] for kind in counts if counts[kind] > LONGEST_STAYS[kind]]


def test_a_spec_survives_its_own_json():
    spec = kiln.enumerate_specs("sm_90")[0]
    (kernel,) = kiln.inspect(json.dumps(spec), "sm_90a")
    assert kernel["spec"] == spec
