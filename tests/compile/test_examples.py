"""The examples that need no GPU run where there is none, and say so."""

import pathlib
import re
import subprocess
import sys

import kiln
import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def run(name, folder):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_compiles_caches_and_inspects(tmp_path):
    out = run("00_demo.py", tmp_path)
    lines = out.splitlines()
    assert sum("cold cache: compiled" in line for line in lines) == 2, out
    assert sum("once more: cached" in line for line in lines) == 2, out
    assert sum("registers a thread" in line for line in lines) == 2, out
    assert lines[-1].startswith("ok: "), out


@pytest.mark.skipif(bool(kiln.diagnose()["devices"]), reason="the demo runs on the GPU here")
def test_the_demo_computes_without_a_gpu(tmp_path):
    out = run("00_demo.py", tmp_path)
    errors = re.findall(r"(attention|gemm) .* s, relative error (\S+) from fp32", out)
    assert [name for name, _ in errors] == ["attention", "gemm"], out
    assert all(0 < float(error) < 1e-3 for _, error in errors), out


def test_the_emulated_device_finds_a_missing_barrier(tmp_path):
    out = run("06_emulated_device.py", tmp_path)
    assert "\nok: found " in out and "in reverse, PTX line" in out, out


def test_prewarming_leaves_nothing_to_compile(tmp_path):
    out = run("03_prewarm_strict.py", tmp_path)
    assert "5 compiled, 0 cached" in out and "\nok: " in out, out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_compiles(path):
    text = path.read_text()
    compile(text, str(path), "exec")
    assert len(text.splitlines()) < 65
