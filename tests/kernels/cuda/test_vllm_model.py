"""vLLM generates with Kiln what it generates with its own attention: models of random weights, in
eager steps and in full CUDA graphs of mixed batches."""

import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parents[2] / "support/vllm_model.py"
# By how much logarithmic probabilities may differ: by the rounding of two layers in bfloat16, and
# beside an 8-bit cache by that of queries to 8 bits, which vLLM's kernel takes.
NEAR = {"auto": 0.15, "fp8": 1.0}
# Share of the tokens before the first that is another one. 0.1 was counted with an 8-bit cache, as
# with weights drawn at random the second choice is often that near.
LEAST = {"auto": 0.8, "fp8": 0.05}


@pytest.fixture(scope="module", autouse=True)
def needs_vllm():
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")


@pytest.fixture(scope="module")
def generate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    @functools.cache
    def run(*arguments, **environment):
        done = subprocess.run(
            [sys.executable, PROGRAM, folder, *arguments], capture_output=True, text=True,
            env={**os.environ, "VLLM_USE_FLASHINFER_SAMPLER": "0", **environment}, timeout=300,
        )  # fmt: skip
        found = [line for line in done.stdout.splitlines() if line.startswith('{"impl"')]
        assert found, (done.stdout[-2000:] + done.stderr)[-8000:]
        return json.loads(found[0])

    run.folder = folder
    return run


def compare(theirs, mine, near):
    """Compares texts up to the first token that two backends may choose differently; the number of
    tokens that were compared."""
    compared = 0
    for one, other in zip(theirs["answers"], mine["answers"], strict=True):
        assert one["cached"] == other["cached"]
        for (a, logprob, second), (b, own, _) in zip(one["steps"], other["steps"], strict=True):
            assert abs(logprob - own) < near
            if a != b:
                assert logprob - second < near  # a tie; what follows is another text
                break
            compared += 1
    return compared


@pytest.mark.parametrize("graphs", ["NONE", "FULL"])
@pytest.mark.parametrize(
    ("model", "cache_dtype", "peer"),
    [
        ("llama", "auto", "FLASH_ATTN"),
        ("qwen3", "auto", "TRITON_ATTN"),
        ("gemma2", "auto", "TRITON_ATTN"),
        ("llama", "fp8", "TRITON_ATTN"),
    ],
)
def test_generation(generate, model, cache_dtype, peer, graphs):
    theirs = generate(model, peer, cache_dtype, "NONE")
    mine = generate(model, "KILN", cache_dtype, graphs)
    assert mine["impl"] == "KilnImpl" and theirs["impl"] != "KilnImpl"
    tokens = sum(len(one["steps"]) for one in theirs["answers"])
    assert compare(theirs, mine, NEAR[cache_dtype]) >= LEAST[cache_dtype] * tokens


def test_nothing_compiles_after_prewarm(generate, tmp_path):
    """By the model's config alone, as a deployment prewarms."""
    generate("llama", "KILN", "auto", "FULL")  # has made the folder of the model
    cache = {"KILN_CACHE_DIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-m", "kiln", "prewarm", "--model", generate.folder / "llama",
         "--dtype", "bfloat16"],
        env={**os.environ, **cache}, check=True, timeout=300,
    )  # fmt: skip
    served = generate("llama", "KILN", "auto", "FULL", KILN_JIT="off", **cache)
    assert served["compiles"] == 0 and served["impl"] == "KilnImpl"
