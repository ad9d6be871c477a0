"""GEMM's transposed tiles whose rows fill no whole number of slabs: the last slab holds fewer."""

import dataclasses

import pytest
from case_group import CaseGroup
from gemm_case import GemmCase
from grid import arch

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.skipif(arch() not in ("sm_90", "sm_90a"), reason="needs sm_90a"),
]

# Their last slabs have 32, 40, 56, 48 and 16 rows, and 16 or 24 in fp32.
TILES = [(80, 64, 64, 9), (88, 128, 64, 7), (120, 128, 64, 6), (112, 192, 64, 5), (208, 128, 64, 4)]


def case_of(tile):
    """Two whole tiles and one of five rows, which begins where the last slab of another ends."""
    return GemmCase(m=2 * tile[0] + 5, n=tile[1] + 24, k=136, bias="f32", config=tile)


def groups():
    for tile in TILES:
        case = case_of(tile)
        few = dataclasses.replace(case, m=tile[0] - 3, n=40)  # one tile, which is not full
        cases = (
            case,
            few,
            dataclasses.replace(case, out_dtype="f32", scale_b="vector"),
            dataclasses.replace(few, dtype="f16", out_storage="odd", activation="silu"),
            dataclasses.replace(few, out_dtype="f32", out_storage="odd"),
            dataclasses.replace(case, batch_a=2, batch_b=2, n=72, alpha=0.5),
        )
        yield CaseGroup("x".join(map(str, tile)), cases)


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_the_last_slab(group):
    for case in group.cases:
        assert "swapped" in str(case.explain()["config"]), case
    group.check()
