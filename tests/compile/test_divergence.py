"""ptxas has to see that the main loops of wgmma are uniform; test_rows.py looks at those of all
built-in kernels. The warps of a loop meet (__syncwarp) where ptxas would not see it otherwise.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from machine_code import divergent_branches_among_products

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
INSPECT = (
    "import json, kiln, sys\n"
    "kernels = kiln.inspect(json.loads(sys.argv[1]), 'sm_90a')\n"
    "sys.stdout.buffer.write(kernels[0]['cubin'])\n"
)


def cubin_of(spec, templates):
    environment = {**os.environ, "KILN_TEMPLATE_DIR": str(templates)}
    command = [sys.executable, "-c", INSPECT, json.dumps(spec)]
    return subprocess.run(command, capture_output=True, check=True, env=environment).stdout


@pytest.fixture
def templates(tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(ROOT / "templates", tmp_path / "templates")


def test_a_loop_whose_warps_do_not_meet_is_told(templates):
    kernel = templates / "attention/sm90/flash_attention.cuh"
    meets = "    if constexpr (Config::kSplits) __syncwarp();\n"
    text = kernel.read_text()
    assert text.count(meets) == 1
    assert divergent_branches_among_products(cubin_of(SPLIT, templates)) == 0
    kernel.write_text(text.replace(meets, ""))
    assert divergent_branches_among_products(cubin_of(SPLIT, templates)) > 0
