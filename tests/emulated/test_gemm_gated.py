"""GEMM with gated activations, on the emulated device: the GPU's cases in every order of blocks."""

import kiln
import pytest
from conftest import ARCH
from gemm_case import GemmCase
from gemm_gated_bodies import (  # noqa: F401
    groups,
    test_columns_come_in_pairs,
    test_no_columns_and_no_k,
    test_the_two_places_of_gates_agree,
    test_what_is_refused,
    tile_groups,
)

pytestmark = pytest.mark.usefixtures("compiled", "order")


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_gated(group):
    group.check()


@pytest.mark.parametrize("group", list(tile_groups()), ids=str)
def test_every_tile_by_config(group):
    group.check()


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_other_architectures(arch):
    with kiln.device(f"emulator:{arch}"):
        GemmCase(activation="swiglu", m=50, n=144, k=72, bias="f32").check()


def test_who_computes_them():
    with kiln.device(ARCH):
        for layout, gate, path in [
            ("nt", "halves", "sm_90a"),
            ("nt", "interleaved", "sm_90a"),
            ("nn", "halves", "sm_90a"),
            ("nn", "interleaved", "portable"),
        ]:
            case = GemmCase(activation="swiglu", layout=layout, gate=gate, n=256)
            explanation = case.explain()
            assert explanation["path"] == path, (layout, gate)
        assert "columns apart that alternate" in explanation["why"][0]
