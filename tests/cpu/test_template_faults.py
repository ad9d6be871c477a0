"""The list of planted mistakes fits the templates: what each replaces is there, once."""

import pathlib

import pytest
from template_faults import FAULTS

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"])
def test_a_fault_can_be_planted(fault):
    text = (ROOT / "templates" / fault["file"]).read_text()
    assert text.count(fault["old"]) == 1
    assert fault["new"] != fault["old"]
    assert (ROOT / fault["caught_by"].split("::")[0]).is_file()


def test_names_are_unique():
    names = [fault["name"] for fault in FAULTS]
    assert len(set(names)) == len(names) > 0
