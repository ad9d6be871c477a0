"""Every instruction case on the emulated device, under both schedules."""

import instruction
import pytest


@pytest.mark.parametrize("schedule", instruction.SCHEDULES)
@pytest.mark.parametrize("case", instruction.all_cases(), ids=repr)
def test_case(case, schedule):
    seed = 0 if schedule == "late" else 1
    if case.fault is not None:
        with pytest.raises(RuntimeError) as failure:
            instruction.run_emulated(case, schedule, seed)
        assert case.fault in str(failure.value)
        return
    instruction.check(case, instruction.run_emulated(case, schedule, seed))


def test_cases_are_valid():
    """What composes wrongly would fail every run; found here without a device."""
    for case in instruction.all_cases():
        assert ".entry kernel" in instruction.compose(case)
        expected = case.expected or [None] * len(case.outputs)
        assert len(expected) == len(case.outputs), case.name
