"""GEMM with few tiles and a long K: CTAs share a tile and meet in a workspace."""

import pytest
import torch
from gemm_case import GemmCase
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


@pytest.mark.parametrize("dtype,config", [("bf16", (64, 64, 64, 6)), ("f32", (64, 64, 32, 6))])
def test_the_tiles_of_a_nearly_empty_wave_are_split(dtype, config):
    multiprocessors = torch.cuda.get_device_properties().multi_processor_count
    case = GemmCase(dtype=dtype, m=61, n=64 * (multiprocessors + 5) - 8, k=8192, config=config,
                    bias="f32", activation="relu")  # fmt: skip
    explained = case.explain()
    assert explained["splits"] > 1 and explained["whole_tiles"] == multiprocessors
    out = case.check()
    assert torch.equal(case.check(), out)
