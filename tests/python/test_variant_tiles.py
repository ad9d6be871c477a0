"""How many tiles attention's kernels visit for the library's masks, on random shapes, beside how
many have a visible pair. KILN_TEST_FULL=1 takes 72 shapes of each mask instead of 3."""

import os

import pytest
from kiln import jit, variants
from seeds import seeded

SHAPES = 72 if os.environ.get("KILN_TEST_FULL") == "1" else 3
MASKS = {
    "causal": lambda draw: jit.Variant("causal_mask", mask="kv <= q"),
    "prefix_lm": lambda draw: variants.prefix_lm(draw(1, 900)),
    "sliding_window": lambda draw: variants.sliding_window(draw(1, 900)),
    "dilated_window": lambda draw: variants.dilated_window(draw(1, 400), draw(1, 9)),
    "chunked": lambda draw: variants.chunked(draw(1, 700)),
    "global_window": lambda draw: variants.global_window(draw(1, 300), draw(1, 500)),
    "neighborhood_2d": lambda draw: variants.neighborhood_2d(draw(14, 80), draw(1, 6)),
}
# Divisions and remainders of q and of kv have bounds apart, not together: 1.09 over
# 72 shapes, 1.9 for one of them.
MOST = {"neighborhood_2d": 1.5 if SHAPES > 3 else 2.5}


@pytest.mark.parametrize("name", MASKS)
def test_only_tiles_with_a_visible_pair_are_visited(name):
    generator = seeded(name)
    visited = empty = 0
    for _ in range(SHAPES):
        drawn = MASKS[name](generator.randrange).plot(
            generator.randrange(1, 1500), generator.randrange(1, 1500), None,
            arch=generator.choice(["sm_80", "sm_90a"]), heads=8,
            head_dim=generator.choice([64, 128, 256]),
            causal=name not in ("causal", "prefix_lm") and generator.random() < 0.5,
        )  # fmt: skip
        assert drawn["wrong"] == 0
        visited += drawn["tiles"] - drawn["skip"]
        empty += drawn["empty"]
    assert visited <= MOST.get(name, 1.0) * (visited - empty)
