"""What random tests draw from: KILN_TEST_SEED, so that what a run has found can be repeated, else a
new seed each time."""

import os
import random


def seeded(test, kind=random.Random):
    """Returns a generator of this kind for the test of this name. A test that fails shows the seed,
    as it is printed."""
    seed = os.environ.get("KILN_TEST_SEED") or f"{random.getrandbits(48):012x}"
    print(f"KILN_TEST_SEED={seed}")
    return kind(f"{seed} {test}")
