"""The examples in the docstrings of the public names run as they are printed, on the emulated
device: each name has one, and what it shows is what comes out."""

import doctest

import kiln
import numpy
import pytest
from kiln import jit

PARSER = doctest.DocTestParser()
FLAGS = doctest.NORMALIZE_WHITESPACE
NAMES = [f"kiln.{name}" for name in kiln.__all__ if name != "jit"]
NAMES += [f"kiln.jit.{name}" for name in jit.__all__]


def example(name):
    """The docstring of `kiln.….name` as a doctest."""
    thing = jit if name.startswith("kiln.jit.") else kiln
    text = getattr(thing, name.rpartition(".")[2]).__doc__
    names = {"kiln": kiln, "jit": jit, "numpy": numpy}
    return PARSER.get_doctest(text, names, name, None, 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of(name):
    test, report = example(name), []
    assert test.examples, f"{name} has no example"
    with kiln.device("emulator:sm_90a"):
        result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_a_wrong_example_fails():
    test, report = PARSER.get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0), []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 1
