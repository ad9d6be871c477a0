"""`kiln bench` and `kiln doctor` on a GPU: figures that can be true, beside PyTorch's."""

import json
import subprocess
import sys

import pytest
import torch


def run_kiln(*arguments):
    command = [sys.executable, "-m", "kiln", *arguments, "--json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ["flash_attention", "--shape", "2x1024x8x128", "--kv-heads", "2", "--causal"],
        ["flash_attention", "--shape", "4x1x8x128", "--kv-len", "4096", "--kv-heads", "2"],
        ["flash_attention", "--shape", "1x64x4x64", "--kv-len", "100", "--causal"],
        ["gemm", "--m", "16,1024", "--n", "1024", "--k", "1024"],
        ["gemm", "--m", "256", "--n", "512", "--k", "512", "--dtype", "float32"],
    ],
)
def test_beside_pytorch(arguments):
    report = run_kiln("bench", *arguments, "--seconds", "0.05")
    assert report["device"] == torch.cuda.get_device_name()
    for result in report["results"]:
        assert result["checked"] and result["why_no_peer"] == ""
        assert 0.2 < result["peer"]["ratio"] < 20
        assert 0 < result["us"] < 1e5
        share = result["share_of_peak"]["tflops"]
        assert share is None or 0 < share <= 1


def test_alone():
    arguments = ["flash_attention", "--shape", "1x512x4x64", "--window", "63"]
    (result,) = run_kiln("bench", *arguments, "--seconds", "0.05")["results"]
    assert (result["peer"], result["checked"]) == (None, False)
    assert result["us"] > 0


def test_doctor_requires_a_gpu_and_finds_it():
    report = run_kiln("doctor", "--require-gpu")
    assert report["problems"] == []
    assert report["devices"][0]["name"] == torch.cuda.get_device_name(0)
    assert (
        "of its major version" in report["nvrtc"]["verdict"]
        or "not newer" in (report["nvrtc"]["verdict"])
    )
