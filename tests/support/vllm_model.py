"""A program: vLLM's engine generates on a GPU with a model of random weights.

    python vllm_model.py FOLDER MODEL BACKEND CACHE_DTYPE GRAPHS

MODEL is a key of MODELS, and GRAPHS is NONE or a mode of vLLM's CUDA graphs, such as FULL. Prints
one line of JSON at the end: the backend of the first layer, how many kernels Kiln compiled, and for
each prompt its new tokens, each with its logarithmic probability and with that of the runner-up.
Prompts are prefilled in chunks of 64 tokens, beside decodes; those of the second call begin with
tokens that the first has left in the cache.
"""

import json
import os
import pathlib
import sys

import torch
import transformers

FIRST = [list(range(3, 200)), list(range(150, 170)), [7], list(range(300, 365))]
SECOND = [[*FIRST[0], *range(300, 320)], [7, 9]]
TOKENS = 24
SIZES = {
    "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "vocab_size": 512,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False,
}  # fmt: skip
# Full attention; a window in each second layer with capped logits; grouped heads of 128.
MODELS = {
    "llama": ("Llama", {"head_dim": 64}),
    "gemma2": (
        "Gemma2",
        {
            "head_dim": 64,
            "sliding_window": 48,
            "query_pre_attn_scalar": 64,
            "tie_word_embeddings": True,
        },
    ),
    "qwen3": ("Qwen3", {"head_dim": 128}),
}


def make_model(folder, name):
    torch.manual_seed(0)
    kind, more = MODELS[name]
    architecture = f"{kind}ForCausalLM"
    config = getattr(transformers, f"{kind}Config")(
        **{**SIZES, **more}, architectures=[architecture]
    )
    model = getattr(transformers, architecture)(config)
    for part, weights in model.named_parameters():
        if "norm" not in part:
            # Attention that prefers few keys, and logits that tell tokens apart.
            size = 0.12 if "q_proj" in part or "k_proj" in part else 0.06
            weights.data = torch.randn_like(weights) * size
    model.bfloat16().save_pretrained(folder)


def engine(folder, backend, cache_dtype, graphs):
    from vllm import LLM

    return LLM(
        model=str(folder), dtype="bfloat16", attention_config={"backend": backend},
        kv_cache_dtype=cache_dtype, skip_tokenizer_init=True, max_model_len=512, max_num_seqs=8,
        max_num_batched_tokens=64, kv_cache_memory_bytes=256 << 20, seed=1,
        enforce_eager=graphs == "NONE",
        # vLLM's own compiler is not what is tested, and depends on PyTorch's version.
        compilation_config={"mode": 0, "cudagraph_mode": graphs},
    )  # fmt: skip


def generate(llm):
    from vllm import SamplingParams

    how = SamplingParams(
        temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=2, detokenize=False
    )
    answers = []
    for prompts in (FIRST, SECOND):
        for one in llm.generate([{"prompt_token_ids": ids} for ids in prompts], how):
            (out,) = one.outputs
            steps = []
            for token, likely in zip(out.token_ids, out.logprobs):
                values = sorted((x.logprob for x in likely.values()), reverse=True)
                steps.append([token, likely[token].logprob, values[1]])
            answers.append({"cached": one.num_cached_tokens, "steps": steps})
    return answers


def main(folder, name, backend, cache_dtype, graphs):
    where = pathlib.Path(folder) / name
    if not (where / "config.json").exists():
        make_model(where, name)
    # One process, so that Kiln's counts and vLLM's layers are at hand.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import kiln
    import kiln.integrations.vllm

    kiln.integrations.vllm.register()  # for a Kiln that is not installed, but on the path
    llm = engine(where, backend, cache_dtype, graphs)
    answers = generate(llm)
    layers = llm.llm_engine.vllm_config.compilation_config.static_forward_context
    impl = type(next(iter(layers.values())).impl).__name__
    compiled = kiln.stats()["compiles"]
    print(json.dumps({"impl": impl, "compiles": compiled, "answers": answers}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
