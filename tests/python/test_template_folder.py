"""KILN_TEMPLATE_DIR: a folder of templates may not reach for files that the key does not cover."""

import pathlib
import shutil

import pytest

USAGE = 2
TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "templates"


@pytest.fixture
def inspect_with(kiln_command, tmp_path):
    """Compiles a kernel with templates of which one begins with the text."""

    def run(text):
        folder = tmp_path / "templates"
        shutil.copytree(TEMPLATES, folder, dirs_exist_ok=True)
        types = folder / "base/types.cuh"
        types.write_text(f"{text}\n{(TEMPLATES / 'base/types.cuh').read_text()}")
        flags = ["--block-m", 16, "--block-n", 64, "--arch", "sm_80", "--json"]
        return kiln_command("inspect", "gemm", *flags, KILN_TEMPLATE_DIR=str(folder))

    return run


def test_a_changed_template_is_another_kernel(inspect_with):
    first = inspect_with("// one").json()[0]
    assert inspect_with("// two").json()[0]["key"] != first["key"]
    assert inspect_with("// one").json()[0] == {**first, "cached": True}


def test_an_absolute_include_is_refused(inspect_with, tmp_path):
    outside = tmp_path / "outside.cuh"
    outside.write_text("#define FROM_OUTSIDE 1\n")
    run = inspect_with(f'#include "{outside}"')
    assert run.code == USAGE
    assert "the file /kiln/base/types.cuh of" in run.stderr
    assert "reads a file from outside, which the key of a kernel does not cover" in run.stderr


@pytest.mark.parametrize(
    "question",
    [
        '#if __has_include("/etc/passwd")\n#endif',
        '#define JOIN(a, b) a##b\n#if JOIN(__has_, include)("/etc/passwd")\n#endif',
    ],
)
def test_a_question_for_a_file_is_refused(inspect_with, question):
    run = inspect_with(question)
    assert run.code == USAGE and "reads a file from outside" in run.stderr
