"""The cases of tests/emulated/test_sm90_base.py on a GPU, a few times each: the hardware's schedule
is another every time."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "emulated"))

import cuda_driver
import sm90_case

RUNS = 5
CASES = [case for case in sm90_case.all_cases() if case.fault is None]


@pytest.fixture(scope="module", autouse=True)
def cubins(request):
    """Of all chosen cases, compiled many at a time."""
    if not cuda_driver.runs("sm_90a"):
        pytest.skip("this GPU does not run sm_90a")
    sm90_case.compile_chosen(request.session.items, *sm90_case.HARDWARE)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_case(case):
    for _ in range(RUNS):
        sm90_case.check(case, sm90_case.run_on_gpu(case))
