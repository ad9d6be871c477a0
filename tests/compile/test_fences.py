"""Fences of sm_90a kernels that no run on the emulated device can miss, read from the PTX.

The copy engine overwrites stages of shared memory that warps have read. PTX wants a proxy fence
between a warp's last read and the barrier by which it hands the stage back; the emulated device
asks for one behind writes alone.
"""

import re

import kiln
import pytest

RESIDUAL = {"op": "gemm", "bias": "bfloat16", "residual": "bfloat16", "layout": "nt"}
TILES = [(128, 256, 4), (128, 128, 6), (128, 192, 4)]
STEPS = (
    r"fence\.proxy\.async|bar\.sync|barrier\.sync|ld\.shared|wgmma\.wait|mbarrier\.arrive\.shared"
)


def steps_before_arrivals(ptx):
    """What comes before each arrival that hands a stage back, other arrivals aside."""
    last = None
    for line in ptx.splitlines():
        step = re.search(STEPS, line)
        if step and step[0] == "mbarrier.arrive.shared":
            yield last
        elif step:
            last = step[0]


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_the_residuals_stages_are_released_behind_a_fence(tile):
    names = ("block_m", "block_n", "stages")
    kernels = kiln.inspect({**RESIDUAL, **dict(zip(names, tile))}, "sm_90a")
    read = [kernel for kernel in kernels if "kResidualBoxes = true" in kernel["source"]]
    assert read
    for kernel in read:
        before = set(steps_before_arrivals(kernel["ptx"]))
        assert before == {"wgmma.wait", "fence.proxy.async"}, before
