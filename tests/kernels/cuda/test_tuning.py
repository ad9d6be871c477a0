"""`kiln tune gemm` on a GPU: a small run, whose table then decides."""

import json
import subprocess
import sys

import kiln
import pytest
import torch


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_small_run_and_its_table(tmp_path, dtype):
    path = tmp_path / "table.json"
    shapes = ["--shape", "64x512x1024", "--shape", "512x512x512"]
    command = [sys.executable, "-m", "kiln", "tune", "gemm", *shapes, "--dtype", dtype]
    run = subprocess.run(
        [*command, "--out", str(path), "--seconds", "0.05", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    written = json.loads(path.read_text())
    assert json.loads(run.stdout) == written
    assert written["device"] == torch.cuda.get_device_name()
    over = written["model_over_best"]
    assert 1 <= over["geometric_mean"] <= over["worst"]
    options = {"precision": "tf32"} if dtype == "float32" else {}
    kiln.set_tuning(path)
    try:
        for entry in written["entries"]:
            assert 0 < entry["us"] <= entry["model"]["us"]
            a, w = (
                torch.randn(rows, entry["k"], device="cuda", dtype=getattr(torch, dtype))
                for rows in (entry["m"], entry["n"])
            )
            found = kiln.explain("gemm", a, w.t(), **options)
            assert f"M = {entry['m']}" in found["why"][-1]
            tile = {name: found["spec"][name] for name in ("block_m", "block_n", "block_k")}
            assert tile.items() <= entry["config"].items()
            out = kiln.jit.gemm(a, w.t(), **options)
            expected = a.float() @ w.float().t()
            assert (out.float() - expected).abs().max() < 2e-2 * expected.abs().max()
    finally:
        kiln.set_tuning(None)
