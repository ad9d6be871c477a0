"""These tests draw calls at random: KILN_TEST_SEED decides them, and KILN_TEST_CALLS multiplies
their number.

A call that fails prints its case, which `Case(...).check()` repeats.
"""

import os

import pytest
from random_calls import KINDS, Draw
from seeds import seeded

pytestmark = pytest.mark.usefixtures("device")

TIMES = int(os.environ.get("KILN_TEST_CALLS", "1"))
CALLS = [(kind, number) for kind, count in KINDS.items() for number in range(count * TIMES)]


@pytest.mark.parametrize(
    ("kind", "number"), CALLS, ids=[f"{kind.__name__}{number}" for kind, number in CALLS]
)
def test_a_call(kind, number):
    case = kind(seeded(f"{kind.__name__} {number}", Draw))
    print(repr(case))
    case.check()
