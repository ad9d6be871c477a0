"""GEMM with few tiles and a long K: CTAs share a tile and meet in a workspace."""

import pytest
from gemm_split_bodies import (  # noqa: F401
    epilogue_groups,
    groups,
    test_a_chosen_tile_is_split_too,
    test_an_expression_sees_the_whole_sum,
    test_every_part_of_k_counts_once,
    test_repeats_are_bit_identical,
    test_what_lies_in_the_workspace_does_not_matter,
)

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.mark.parametrize("group", [*groups(), *epilogue_groups()], ids=str)
def test_splits(group):
    group.check()
