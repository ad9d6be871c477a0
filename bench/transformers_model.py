#!/usr/bin/env python3
"""Measures a model of transformers with Kiln beside its other attention implementations.

    bench/transformers_model.py                 # Llama-3.1-8B's shape: prefill of 8k, 256 tokens
    bench/transformers_model.py --layers 8 --prompt 2048 --tokens 64

The weights are random. Prefill is one forward pass of the prompt; decoding generates tokens one by
one with a static cache, eagerly and as a step that torch.compile has compiled in mode
reduce-overhead, with CUDA graphs. The implementations take turns. Logits of the prompt are compared
first. Writes transformers.json and prints a table; exits with 1 where logits differ, with 4 where
the machine lacks something.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
OK, CHECK_FAILED, ENVIRONMENT = 0, 1, 4
# Llama-3.1-8B, but for its rotary scaling, which attention does not see.
SHAPE = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
# Parts of the names of kernels that attend, of all implementations.
ATTENTION = ("flash", "fmha", "attention", "cutlassF", "kiln", "splitkv", "sdpa")
STEPS = 8  # of decoding, to warm up and to profile
# This is how far logits may differ, by root mean squares. What each layer rounds adds up as noise
# does: 32 layers of random weights differ by 0.05 from cuDNN's.
MOST_DIFFERENCE = 0.01  # times the square root of the number of layers


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layers", type=int, default=32, help="of the model (default 32: 16 GB)")
    parser.add_argument("--prompt", type=int, default=8192, help="tokens of prefill")
    parser.add_argument("--tokens", type=int, default=256, help="tokens decoded in each turn")
    parser.add_argument("--batch", type=int, default=1, help="sequences")
    parser.add_argument("--turns", type=int, default=3, help="of each implementation")
    parser.add_argument("--eager-only", action="store_true", help="do not compile decoding")
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "build" / "bench", metavar="DIR",
        help="folder of the JSON file (default build/bench)",
    )  # fmt: skip
    return parser.parse_args(arguments)


def make_model(layers):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**SHAPE, num_hidden_layers=layers)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            torch.manual_seed(0)
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(default)


class Run:
    """A model with one implementation, its cache, and its decoding step, compiled or not."""

    def __init__(self, model, name, options, compiled):
        import torch
        from transformers import StaticCache

        self.name, self.compiled, self._model, self._options = name, compiled, model, options
        length = options.prompt + options.tokens
        self._cache = StaticCache(config=model.config, max_cache_len=length)
        self._position = torch.zeros(1, 1, dtype=torch.int64, device="cuda")
        self._step = model.forward
        if compiled:
            self._step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)

    def prefill(self, prompt):
        """The logits of the last token."""
        self._model.set_attn_implementation(self.name)
        self._cache.reset()
        self._position.fill_(prompt.shape[1])
        return self._model(prompt, past_key_values=self._cache, logits_to_keep=1).logits

    def decode(self, token, count):
        """Generates count tokens greedily; nothing waits for the device."""
        import torch

        for _ in range(count):
            if self.compiled:
                torch.compiler.cudagraph_mark_step_begin()
            logits = self._step(
                token, past_key_values=self._cache, position_ids=self._position
            ).logits
            token = logits[:, -1:].argmax(-1).clone()
            self._position += 1
        return token


def timed(call):
    """Milliseconds by the device's events, and the call's result."""
    import torch

    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    before.record()
    result = call()
    after.record()
    torch.cuda.synchronize()
    return before.elapsed_time(after), result


def kernel_times(call):
    """Milliseconds of the device in a call: in kernels of attention, and in all; and the names of
    the former."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as record:
        call()
        torch.cuda.synchronize()
    attending, total, names = 0.0, 0.0, set()
    for event in record.key_averages():
        spent = getattr(event, "self_device_time_total", 0.0) / 1e3
        total += spent
        if spent and any(part.lower() in event.key.lower() for part in ATTENTION):
            attending += spent
            names.add(event.key[:120])
    return {"attention_ms": attending, "kernels_ms": total, "names": sorted(names)}


def measure(options):
    import torch
    from kiln.integrations import transformers as bridge

    bridge.register()
    model = make_model(options.layers)
    vocabulary = SHAPE["vocab_size"]
    prompt = torch.randint(vocabulary, (options.batch, options.prompt), device="cuda")
    names = ["kiln", "sdpa"]
    if importlib.util.find_spec("flash_attn") is not None:
        names.append("flash_attention_2")
    runs, results, left_out = [], {}, {}
    for compiled in (False,) if options.eager_only else (False, True):
        for name in names:
            run = Run(model, name, options, compiled)
            key = f"{name} {'compiled' if compiled else 'eager'}"
            try:
                logits = run.prefill(prompt)
                run.decode(logits[:, -1:].argmax(-1), STEPS)
                torch.cuda.synchronize()
            except Exception as error:  # a peer's trouble is not the others'
                if name == "kiln":
                    raise
                left_out[key] = str(error).split("\n")[0]
                continue
            runs.append(run)
            results[key] = {"logits": logits.float().clone(), "prefill_ms": [], "token_ms": []}
    count = options.tokens - 1
    for turn in range(-1, options.turns):  # the first one warms up: allocations can take a second
        for run in runs if turn % 2 == 0 else runs[::-1]:
            result = results[f"{run.name} {'compiled' if run.compiled else 'eager'}"]
            took, logits = timed(functools.partial(run.prefill, prompt))
            if turn >= 0:
                result["prefill_ms"].append(took)
            token = logits[:, -1:].argmax(-1).clone()
            took, _ = timed(functools.partial(run.decode, token, count))
            if turn >= 0:
                result["token_ms"].append(took / count)
    for run in runs:
        result = results[f"{run.name} {'compiled' if run.compiled else 'eager'}"]
        result["prefill_kernels"] = kernel_times(functools.partial(run.prefill, prompt))
        result["decode_kernels"] = kernel_times(
            functools.partial(run.decode, prompt[:, :1].clone(), STEPS)
        )
    return results, left_out


def check(results, layers):
    """Adds how far each one's logits of the prompt are from sdpa's; whether all are near."""
    reference = results["sdpa eager"]["logits"]
    near = True
    for result in results.values():
        difference = (result.pop("logits") - reference).norm() / reference.norm()
        result["difference"] = float(difference)
        near = near and result["difference"] <= MOST_DIFFERENCE * layers**0.5
    return near


def table(results):
    import report

    rows = []
    for key, result in results.items():
        prefill, token = (statistics.median(result[name]) for name in ("prefill_ms", "token_ms"))
        peer = results[f"sdpa {key.split()[1]}"]
        ratios = [
            statistics.median(peer[name]) / statistics.median(result[name])
            for name in ("prefill_ms", "token_ms")
        ]
        attention = result["prefill_kernels"]["attention_ms"]
        step = result["decode_kernels"]["attention_ms"] / STEPS
        rows.append([
            key, f"{prefill:.1f}", f"{ratios[0]:.3f}", f"{attention:.1f}",
            f"{token:.3f}", f"{ratios[1]:.3f}", f"{step:.3f}", f"{result['difference']:.4f}",
        ])  # fmt: skip
    headers = ["", "prefill ms", "sdpa /", "attends", "token ms", "sdpa /", "attends", "differs"]
    return report.table(headers, rows)


def main(arguments=None):
    options = parse(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import machine
    import report

    if why := machine.lacking("bench/transformers_model.py", "transformers"):
        print(why, file=sys.stderr)
        return ENVIRONMENT
    import torch
    import transformers

    start = time.perf_counter()
    with torch.no_grad():
        results, left_out = measure(options)
        near = check(results, options.layers)
    document = {
        "schema": report.SCHEMA,
        "suite": "transformers",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.machine(),
        "versions": {**machine.versions(), "transformers": transformers.__version__},
        "shape": {**SHAPE, "layers": options.layers, "prompt": options.prompt,
                  "tokens": options.tokens, "batch": options.batch},
        "results": results,
        "left_out": left_out,
        "seconds": time.perf_counter() - start,
    }  # fmt: skip
    print(machine.machine(), f"transformers {transformers.__version__}", sep=", ")
    print(table(results))
    for key, result in results.items():
        print(f"{key} attends by: {'; '.join(result['prefill_kernels']['names'])[:400]}")
    for key, why in left_out.items():
        print(f"left out {key}: {why}")
    print(f"wrote {report.save(options.out, 'transformers', document)}")
    if not near:
        print("The logits of the prompt differ by more than rounding.", file=sys.stderr)
    return OK if near else CHECK_FAILED


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    sys.exit(main())
