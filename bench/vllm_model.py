#!/usr/bin/env python3
"""Measures a model in vLLM with Kiln beside vLLM's own attention backends.

    bench/vllm_model.py                          # Llama-3.1-8B's shape beside FLASH_ATTN
    bench/vllm_model.py --layers 8 --peer TRITON_ATTN --turns 5

The weights are vLLM's dummies. Each backend has an engine in a process of its own; all lie on one
GPU, and take turns: prompts of 8k tokens of which one token is generated, then 64 requests of 1k
tokens and 8 of 16k, of which decoding is the time beyond that of one token. Steps of decoding are
full CUDA graphs; vLLM's compiler is off, since it would be the same for all. Writes vllm.json and
prints a table; exits with 4 where the machine lacks something.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
OK, ENVIRONMENT = 0, 4
GIB = 1 << 30
MARK = "measured: "
# name: requests, tokens of each prompt, tokens generated from each
WORKLOADS = {
    "prefill 8 x 8k": (8, 8192, 1),
    "decode 64 x 1k": (64, 1024, 129),
    "decode 8 x 16k": (8, 16384, 129),
}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layers", type=int, default=32, help="of the model (default 32: 16 GB)")
    parser.add_argument(
        "--peer", action="append", help="a backend (default FLASH_ATTN); repeatable"
    )
    parser.add_argument("--turns", type=int, default=3, help="of each backend")
    parser.add_argument("--cache-dtype", default="auto", help="of the KV cache, as vLLM names it")
    parser.add_argument("--engine", help=argparse.SUPPRESS)  # a backend: this is its process
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "build" / "bench", metavar="DIR",
        help="folder of the JSON file (default build/bench)",
    )  # fmt: skip
    return parser.parse_args(arguments)


def write_config(folder, layers):
    from transformers import LlamaConfig
    from transformers_model import SHAPE

    config = LlamaConfig(**SHAPE, num_hidden_layers=layers, architectures=["LlamaForCausalLM"])
    config.dtype = "bfloat16"
    config.save_pretrained(folder)


def serve(options):
    """An engine's process: for each line of stdin, a workload's name, tells its seconds."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import kiln.integrations.vllm
    import torch
    import vllm
    from vllm import LLM, SamplingParams

    kiln.integrations.vllm.register()
    llm = LLM(
        model=options.folder, load_format="dummy", skip_tokenizer_init=True, seed=0,
        attention_config={"backend": options.engine}, kv_cache_dtype=options.cache_dtype,
        kv_cache_memory_bytes=24 * GIB, max_model_len=20000, max_num_batched_tokens=8192,
        enable_prefix_caching=False,
        compilation_config={"mode": 0, "cudagraph_mode": "FULL"},
    )  # fmt: skip

    def run(requests, prompt, tokens):
        generator = torch.Generator().manual_seed(prompt)
        ids = torch.randint(100, 100000, (requests, prompt), generator=generator).tolist()
        how = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        torch.cuda.synchronize()
        start = time.perf_counter()
        llm.generate([{"prompt_token_ids": row} for row in ids], how, use_tqdm=False)
        return time.perf_counter() - start

    print(MARK + json.dumps({"vllm": vllm.__version__}), flush=True)
    for line in sys.stdin:
        requests, prompt, tokens = WORKLOADS[line.strip()]
        seconds = [run(requests, prompt, 1)]
        if tokens > 1:
            seconds.append(run(requests, prompt, tokens))
        print(MARK + json.dumps(seconds), flush=True)


class Engine:
    """A backend's process."""

    def __init__(self, backend, options, folder):
        self.backend = backend
        self._log = options.out / f"vllm-{backend}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as log:
            self._process: Any = subprocess.Popen(
                [sys.executable, __file__, "--engine", backend, "--folder", folder,
                 "--cache-dtype", options.cache_dtype],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def answer(self):
        """Returns what the process tells next."""
        for line in self._process.stdout:
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])
        raise RuntimeError(
            f"the engine with {self.backend} ended, see {self._log}:\n"
            + self._log.read_text()[-4000:]
        )

    def measure(self, workload):
        print(workload, file=self._process.stdin, flush=True)
        return self.answer()

    def stop(self):
        self._process.stdin.close()
        self._process.wait(60)


def measure(options, folder):
    """Milliseconds of each backend by workload: of all prompts, or of one decoding step."""
    engines = [Engine(name, options, folder) for name in ("KILN", *options.peer)]
    for engine in engines:
        version = engine.answer()["vllm"]
    results: dict[str, dict[str, list[float]]] = {
        engine.backend: {name: [] for name in WORKLOADS} for engine in engines
    }
    for turn in range(-1, options.turns):  # the first one warms up
        for name, (_, _, tokens) in WORKLOADS.items():
            for engine in engines if turn % 2 == 0 else engines[::-1]:
                seconds = engine.measure(name)
                took = seconds[0] if tokens == 1 else (seconds[1] - seconds[0]) / (tokens - 1)
                if turn >= 0:
                    results[engine.backend][name].append(took * 1e3)
    for engine in engines:
        engine.stop()
    return results, version


def table(results):
    import report

    rows = []
    for name in WORKLOADS:
        own = statistics.median(results["KILN"][name])
        row = [name, f"{own:.2f}"]
        for peer in list(results)[1:]:
            other = statistics.median(results[peer][name])
            row += [f"{other:.2f}", f"{other / own:.3f}"]
        rows.append(row)
    headers = ["ms", "KILN"]
    for peer in list(results)[1:]:
        headers += [peer, "ratio"]
    return report.table(headers, rows)


def main(arguments=None):
    options = parse(arguments)
    options.peer = options.peer or ["FLASH_ATTN"]
    if options.engine:
        serve(options)
        return OK
    import machine
    import report

    if why := machine.lacking("bench/vllm_model.py", "vllm"):
        print(why, file=sys.stderr)
        return ENVIRONMENT

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        write_config(folder, options.layers)
        results, version = measure(options, folder)
    document = {
        "schema": report.SCHEMA,
        "suite": "vllm",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.machine(),
        "versions": {**machine.versions(), "vllm": version},
        "layers": options.layers,
        "cache_dtype": options.cache_dtype,
        "results": results,
        "seconds": time.perf_counter() - start,
    }
    print(machine.machine(), f"vllm {version}", sep=", ")
    print(table(results))
    print(f"wrote {report.save(options.out, 'vllm', document)}")
    return OK


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    sys.exit(main())
