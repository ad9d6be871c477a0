"""The instruction cases of tests/emulator on a GPU: the hardware against what is expected, and the
emulated device against the hardware."""

import cuda_driver
import instruction
import pytest

CASES = [case for case in instruction.all_cases() if not (case.fault or case.emulator_only)]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_case(case, record_property):
    if not cuda_driver.runs(case.target):
        pytest.skip(f"this GPU does not run {case.target}")
    hardware = instruction.run_on_gpu(case)
    record_property("ulp_to_expected", instruction.check(case, hardware))
    emulated = instruction.run_emulated(case)
    buffers = hardware.buffers if case.expected_buffers is not None else []
    if case.expected_buffers is not None:
        buffers = [
            got if want is not None else None
            for got, want in zip(hardware.buffers, case.expected_buffers)
        ]
    lines, worst = instruction.mismatches(
        case, emulated, hardware.outputs, buffers, "the hardware gives"
    )
    record_property("ulp_emulator_to_hardware", worst)
    assert not lines, "\n".join([case.name, *lines])
