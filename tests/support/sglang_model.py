"""A program: SGLang's engine, without a GPU, generates with a model of random weights.

    python sglang_model.py FOLDER BACKEND PAGE_SIZE

Prints one line of JSON at the end: for each prompt the number of its cached tokens and, for each
new token, its number and its logarithmic probability. Prompts are prefilled in chunks of 32 tokens,
beside decodes; those of the second call begin with tokens that the first has left in the cache.
"""

import json
import pathlib
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

FIRST = [list(range(3, 60)), list(range(150, 170)), [7]]
SECOND = [[*FIRST[0], *range(300, 320)], [7, 9]]


def make_model(folder):
    """GPT-2: SGLang computes its positions without kernels that only a GPU has."""
    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=256, n_layer=2, n_head=4, n_inner=512, vocab_size=512, n_positions=256,
        architectures=["GPT2LMHeadModel"], bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    sizes = {"bias": 0.0, "wte": 0.3, "wpe": 0.6, "attn": 0.15}
    for name, weights in model.named_parameters():
        if ".ln" not in name:
            size = next((size for part, size in sizes.items() if part in name), 0.06)
            weights.data = torch.randn_like(weights) * size
    model.bfloat16().save_pretrained(folder)


def generate(folder, backend, page_size):
    import sglang

    engine = sglang.Engine(
        model_path=str(folder), device="cpu", dtype="bfloat16", attention_backend=backend,
        page_size=page_size, chunked_prefill_size=32, max_total_tokens=1024, context_length=128,
        skip_tokenizer_init=True, disable_cuda_graph=True, disable_overlap_schedule=True,
        sampling_backend="pytorch", mem_fraction_static=0.3, random_seed=1,
    )  # fmt: skip
    answers = []
    for prompts in (FIRST, SECOND):
        how = {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}
        for one in engine.generate(input_ids=prompts, sampling_params=how, return_logprob=True):
            facts = one["meta_info"]
            tokens = [(number, value) for value, number, *_ in facts["output_token_logprobs"]]
            answers.append({"cached": facts["cached_tokens"], "tokens": tokens})
    print(json.dumps(answers), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1])
    if not (where / "config.json").exists():
        make_model(where)
    generate(where, sys.argv[2], int(sys.argv[3]))
