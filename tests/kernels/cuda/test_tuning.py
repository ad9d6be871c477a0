"""`kiln tune` on a GPU: small runs, whose tables then decide."""

import json
import subprocess
import sys

import kiln
import pytest
import torch


def tune(path, *arguments):
    """Runs the command and returns the table that it wrote."""
    options = ["--out", str(path), "--seconds", "0.05", "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "kiln", "tune", *arguments, *options],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    written = json.loads(path.read_text())
    assert json.loads(run.stdout) == written
    assert written["device"] == torch.cuda.get_device_name()
    return written


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_small_run_and_its_table(tmp_path, dtype):
    path = tmp_path / "table.json"
    shapes = ["--shape", "64x512x1024", "--shape", "512x512x512"]
    written = tune(path, "gemm", *shapes, "--dtype", dtype)
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


@pytest.mark.skipif(
    torch.cuda.get_device_capability() != (9, 0), reason="the rows are those of the sm_90a table"
)
def test_a_small_run_of_attention_and_its_table(tmp_path):
    path = tmp_path / "table.json"
    shapes = ["--shape", "2x1024x16x128", "--shape", "1x512/8192x8/4x64"]
    written = tune(path, "attention", *shapes, "--mask", "none,causal,window=255")
    over = written["builtin_over_best"]
    assert 1 <= over["geometric_mean"] <= over["worst"]
    kiln.set_tuning(path)
    try:
        for entry in written["entries"]:
            assert entry["us"] == min(entry["tiles"].values()) <= entry["builtin"]["us"]
            q, k, v = (
                torch.randn(
                    *(entry["batch"], length, heads, entry["head_dim"]),
                    device="cuda",
                    dtype=torch.bfloat16,
                )
                for length, heads in [
                    (entry["len_q"], entry["heads"]),
                    *[(entry["len_kv"], entry["heads_kv"])] * 2,
                ]
            )
            window = {"window": (255, 0)} if entry["mask"] == "window" else {}
            options = {"causal": entry["mask"] != "none", **window}
            found = kiln.explain("flash_attention", q, k, v, **options)
            assert f"len_q = {entry['len_q']}" in found["why"][-1]
            assert entry["config"].get("splits", 1) == found["splits"]
            tuned = kiln.jit.flash_attention(q, k, v, **options)
            kiln.set_tuning(None)
            builtin = kiln.jit.flash_attention(q, k, v, **options)
            kiln.set_tuning(path)
            assert (tuned.float() - builtin.float()).abs().max() < 2e-2
    finally:
        kiln.set_tuning(None)
