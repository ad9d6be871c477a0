"""Small random models of transformers, and how far their logits are from the exact ones."""

import copy
import functools

import torch
import transformers as tf

VOCABULARY = 64
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 32}
HYBRID = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts_per_tok": 1}
SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": 128,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
LATENT = {  # multi-head latent attention: q and k have 48 columns, v has 32
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "first_k_dense_replace": 2,
}

# The decoders that generate, each with its class, its config's class and the config.
DECODERS = {
    "llama": (tf.LlamaForCausalLM, tf.LlamaConfig, GROUPED),
    "qwen3": (tf.Qwen3ForCausalLM, tf.Qwen3Config, GROUPED),
    "mistral": (tf.MistralForCausalLM, tf.MistralConfig, {**GROUPED, "sliding_window": 6}),
    "gemma2": (
        tf.Gemma2ForCausalLM,
        tf.Gemma2Config,
        {**GROUPED, **HYBRID, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 2.0},
    ),
    "gemma3": (
        tf.Gemma3ForCausalLM,
        tf.Gemma3TextConfig,
        {**GROUPED, **HYBRID, "query_pre_attn_scalar": 32},
    ),
    "gpt_oss": (
        tf.GptOssForCausalLM,
        tf.GptOssConfig,
        {**GROUPED, **HYBRID, **EXPERTS, "num_local_experts": 2},
    ),
}
# Models whose masks are of other kinds.
OTHERS = {
    "t5": (
        tf.T5ForConditionalGeneration,
        tf.T5Config,
        {**SEQ2SEQ, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 4},
    ),
    "bart": (
        tf.BartForConditionalGeneration,
        tf.BartConfig,
        {
            **SEQ2SEQ,
            **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 128 for side in ("encoder", "decoder")},
            "max_position_embeddings": 64,
        },
    ),
    "bert": (tf.BertForMaskedLM, tf.BertConfig, SIZES),
    "modernbert": (
        tf.ModernBertForMaskedLM,
        tf.ModernBertConfig,
        {**SIZES, "local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 1,
         "sep_token_id": 2},
    ),
    "deepseek_v3": (tf.DeepseekV3ForCausalLM, tf.DeepseekV3Config, {**SIZES, **LATENT}),
    "llama4": (
        tf.Llama4ForCausalLM,
        tf.Llama4TextConfig,
        {
            **GROUPED,
            **EXPERTS,
            "intermediate_size_mlp": 128,
            "num_local_experts": 2,
            "attention_chunk_size": 8,
            "layer_types": ["chunked_attention", "full_attention"],
        },
    ),
    "qwen2_moe": (  # its layers do not pass on their window
        tf.Qwen2MoeForCausalLM,
        tf.Qwen2MoeConfig,
        {
            **GROUPED,
            **EXPERTS,
            "sliding_window": 6,
            "use_sliding_window": True,
            "num_experts": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
        },
    ),
    "both ways": (
        tf.MistralForCausalLM,
        tf.MistralConfig,
        {**GROUPED, "sliding_window": 6, "is_causal": False},
    ),
}  # fmt: skip


@functools.cache
def exact(name, device):
    """The model in float32 with attention in PyTorch's own operations."""
    make, config, values = {**DECODERS, **OTHERS}[name]
    values = dict(values)
    both_ways = values.pop("is_causal", None) is False
    config = config(**values)
    config._attn_implementation = "eager"
    if both_ways:
        config.is_causal = False
    torch.manual_seed(0)
    model = make(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.1)
    # Tokens of very different weight: the best two are seldom close to each other.
    head = model.get_output_embeddings().weight.data
    head *= torch.randn(len(head), 1).exp()
    return model.to(device)


def rounded(name, device, dtype, attention):
    """The same model in another dtype, with an attention implementation."""
    model = exact(name, device)
    config = copy.deepcopy(model.config)
    config._attn_implementation = attention
    copied = type(model)(config).eval()
    copied.load_state_dict(model.state_dict())
    return copied.to(device, dtype)


def tokens(*shape, device):
    """Random tokens, none of which is special."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, VOCABULARY, shape, generator=generator).to(device)


def padding(side, batch, length, padded, device):
    """A padding mask whose first row has padding on a side; None says that there is none."""
    mask = torch.ones(batch, length, dtype=torch.int64, device=device)
    if side == "left":
        mask[0, :padded] = 0
    elif side == "right":
        mask[0, -padded:] = 0
    elif side == "holes":
        mask[0, padded : padded + 3] = 0
    return mask


def error(logits, reference, mask=None):
    """The largest difference in the rows that are not padding."""
    difference = (logits.float() - reference).abs().amax(-1)
    return float(difference.max() if mask is None else difference[mask.bool()].max())


def is_close(name, device, dtype, inputs, mask=None):
    """Compares a forward pass with "kiln" with the exact one, by the error of "eager"."""
    want = exact(name, device)(**inputs).logits
    eager = error(rounded(name, device, dtype, "eager")(**inputs).logits, want, mask)
    ours = error(rounded(name, device, dtype, "kiln")(**inputs).logits, want, mask)
    assert 0 < ours <= 2 * eager, (ours, eager)
    return 2 * eager


def agree(name, device, prompts, mask, generated, bound):
    """Whether greedy tokens are those of the exact model wherever its best two are further apart
    than the bound; returns how many are, and how many there are."""
    inputs = torch.cat([mask, mask.new_ones(generated.shape)], 1)
    rows = torch.cat([prompts, generated], 1)
    positions = (inputs.cumsum(1) - 1).clamp(min=0)
    logits = exact(name, device)(rows, attention_mask=inputs, position_ids=positions).logits
    logits = logits[:, prompts.shape[1] - 1 : -1]
    best = logits.topk(2, -1)
    same = generated == best.indices[..., 0]
    sure = best.values[..., 0] - best.values[..., 1] > bound
    assert (same | ~sure).all(), (generated, best)
    return int(same.sum()), same.numel()
