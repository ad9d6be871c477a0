"""These tests plant what test_rows.py looks for in built-in kernels, and see that it is found.

ptxas has to see that the main loops of wgmma are uniform: their warps meet (__syncwarp) where it
would not see it otherwise. And PTX has to say which tensor map is prefetched.
"""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

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
SPLIT = {
    "op": "flash_attention",
    "dtype": "bfloat16",
    "head_dim": 192,
    "head_dim_v": 128,
    "block_q": 128,
    "block_kv": 128,
    "stages": 2,
    "splits": True,
}
PAGED = {
    "op": "flash_attention",
    "dtype": "bfloat16",
    "head_dim": 64,
    "block_q": 128,
    "block_kv": 128,
    "stages": 3,
    "storage": "paged",
    "splits": True,
}
INSPECT = (
    "import json, kiln, pickle, sys\n"
    "(kernel,) = kiln.inspect(json.loads(sys.argv[1]), 'sm_90a')\n"
    "pickle.dump(kernel, sys.stdout.buffer)\n"
)


def inspect(spec, templates):
    environment = {**os.environ, "KILN_TEMPLATE_DIR": str(templates)}
    command = [sys.executable, "-c", INSPECT, json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    return pickle.loads(done.stdout)


@pytest.fixture
def templates(tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(ROOT / "templates", tmp_path / "templates")


def replace(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_a_loop_whose_warps_do_not_meet_is_told(templates):
    assert divergent_branches_among_products(inspect(SPLIT, templates)["cubin"]) == 0
    meets = "    if constexpr (Config::kSplits) __syncwarp();\n"
    replace(templates / "attention/sm90/flash_attention.cuh", meets, "")
    assert divergent_branches_among_products(inspect(SPLIT, templates)["cubin"]) > 0


def test_a_prefetch_of_a_map_chosen_at_run_time_is_told(templates):
    assert maps_chosen_at_run_time(inspect(PAGED, templates)["ptx"]) == 0
    values = "    if (are_values) {\n      prefetch_map(args.v);\n"
    chosen = "    if (true) {\n      prefetch_map(are_values ? args.v : args.k);\n"
    replace(templates / "attention/sm90/load.cuh", values, chosen)
    assert maps_chosen_at_run_time(inspect(PAGED, templates)["ptx"]) == 1


def test_long_runs_without_a_yield_are_told():
    ruled = inspect(PAGED, ROOT / "templates")["cubin"]
    assert [longest_stay(ruled, kind) for kind in (MULTIPLY_ADD, MULTIPLY, ADD)] == [1, 1, 3]
    as_ptxas_has_it = inspect(SPLIT, ROOT / "templates")["cubin"]
    assert longest_stay(as_ptxas_has_it, MULTIPLY) > 8
