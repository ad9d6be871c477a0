"""The examples in the docstrings of the public names run as a reader pastes them: in an empty
namespace, where no GPU is. Each name has one, and what it shows is what comes out."""

import contextlib
import doctest

import kiln
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
    return PARSER.get_doctest(text, {}, name, None, 0)


def without_gpu():
    """What a machine without a GPU does by itself: the emulated device computes host arrays."""
    has_driver = kiln.diagnose()["driver"]["found"]
    return kiln.device("emulator:sm_90a") if has_driver else contextlib.nullcontext()


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may write a file
    test, report = example(name), []
    assert test.examples, f"{name} has no example"
    with without_gpu():
        result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("text", [">>> 1 + 1\n3\n", ">>> kiln.stats()['misses'] >= 0\nTrue\n"])
def test_a_wrong_example_and_one_without_its_imports_fail(text):
    test, report = PARSER.get_doctest(text, {}, "wrong", None, 0), []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 1
