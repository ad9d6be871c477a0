"""Models of transformers with attn_implementation="kiln": on the emulated device with CPU tensors,
or on a GPU if there is one. KILN_TEST_FULL=1 and a GPU take all models in both dtypes."""

import os
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: no test asks the hub for anything

import kiln
import pytest
import tiny_models as tiny
import torch
import transformers as tf
from kiln import jit
from kiln.integrations import transformers as bridge
from message_page import check
from transformers import masking_utils, modeling_utils

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FULL = DEVICE == "cuda" or os.environ.get("KILN_TEST_FULL") == "1"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ROUTES = ("flash_attention", "flash_attention_varlen", "flash_attention_with_kvcache")
ENDLESS = {"eos_token_id": -1}
gpu = pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")


@pytest.fixture(autouse=True, scope="module")
def registered():
    bridge.register()
    yield
    bridge.unregister()


@pytest.fixture(autouse=True)
def emulated():
    torch._dynamo.reset()
    with torch.no_grad():
        if DEVICE == "cuda":
            yield
        else:
            with kiln.device("emulator:sm_80", checks=False):
                yield


@pytest.fixture
def routes(monkeypatch):
    """Counts the calls of each operation, those with an attn_mask apart."""
    from kiln.integrations import _transformers_attention as module

    class Counting:
        pass

    counts = {}

    def counting(name):
        operation = getattr(jit, name)

        def call(*tensors, **options):
            key = "attn_mask" if options.get("attn_mask") is not None else name
            counts[key] = counts.get(key, 0) + 1
            return operation(*tensors, **options)

        return staticmethod(call)

    for name in ROUTES:
        setattr(Counting, name, counting(name))
    monkeypatch.setattr(module, "jit", Counting)
    return counts


def cases(table, few):
    """Every model in both dtypes, or in a short run those named, in the dtype named."""
    chosen = [(name, dtype) for name in table for dtype in DTYPES] if FULL else few
    return pytest.mark.parametrize(("name", "dtype"), chosen)


SERVED = {"none": ROUTES[0], "left": ROUTES[2], "right": ROUTES[2], "holes": "attn_mask"}
SHORT = [("llama", "bf16"), ("gemma2", "bf16"), ("gpt_oss", "fp16")]


@cases(tiny.DECODERS, SHORT)
def test_logits_and_greedy_tokens(name, dtype, routes):
    prompts = tiny.tokens(2, 14, device=DEVICE)
    few = not FULL and name != "llama"  # whose kernels for padding and caches are the others', too
    bound = 0.0
    for side, served in [("left", ROUTES[2])] if few else SERVED.items():
        mask = tiny.padding(side, 2, 14, 4, DEVICE)
        routes.clear()
        inputs = {"input_ids": prompts, "attention_mask": mask}
        allowed = tiny.is_close(name, DEVICE, DTYPES[dtype], inputs, mask)
        bound = max(bound, allowed)
        assert routes == {served: 2}
    model = tiny.rounded(name, DEVICE, DTYPES[dtype], "kiln")
    right, all_of_them = 0, 0
    for side, cache in (("none", "dynamic"), ("left", "static"))[few:]:
        mask = tiny.padding(side, 2, 14, 4, DEVICE)
        routes.clear()
        options = {"cache_implementation": cache, "disable_compile": True, **ENDLESS}
        out = model.generate(
            prompts, attention_mask=mask, max_new_tokens=6, do_sample=False, **options
        )
        counts = tiny.agree(name, DEVICE, prompts, mask, out[:, 14:], bound)
        right, all_of_them = right + counts[0], all_of_them + counts[1]
        assert "attn_mask" not in routes and sum(routes.values()) == 12
        if cache == "static":
            assert routes == {ROUTES[2]: 12}
    assert right >= 0.95 * all_of_them


@pytest.mark.skipif(FULL, reason="test_logits_and_greedy_tokens takes all models")
@pytest.mark.parametrize("name", [name for name in tiny.DECODERS if name not in dict(SHORT)])
def test_logits_of_the_other_decoders(name):
    mask = tiny.padding("left", 2, 14, 4, DEVICE)
    inputs = {"input_ids": tiny.tokens(2, 14, device=DEVICE), "attention_mask": mask}
    tiny.is_close(name, DEVICE, torch.bfloat16, inputs, mask)


OTHERS = {
    "t5": {"attn_mask": 6},
    "bart": {"flash_attention_with_kvcache": 4, "flash_attention": 2},
    "bert": {"flash_attention_with_kvcache": 2},
    "modernbert": {"flash_attention_with_kvcache": 1, "attn_mask": 1},
    "deepseek_v3": {"flash_attention_with_kvcache": 2},
    "llama4": {"flash_attention_with_kvcache": 1, "attn_mask": 1},
    "qwen2_moe": {"flash_attention_with_kvcache": 2},
}


@cases(OTHERS, [("t5", "bf16"), ("bart", "bf16"), ("deepseek_v3", "bf16")])
def test_other_masks(name, dtype, routes):
    """Encoders, decoders that see them, a bias of positions, chunks, v narrower than q."""
    inputs = {"input_ids": tiny.tokens(2, 14, device=DEVICE)}
    causal = name in ("deepseek_v3", "llama4", "qwen2_moe")
    inputs["attention_mask"] = tiny.padding("left" if causal else "right", 2, 14, 4, DEVICE)
    mask = inputs["attention_mask"]
    if name in ("t5", "bart"):
        mask, inputs["decoder_input_ids"] = None, inputs["input_ids"][:, :7]
    tiny.is_close(name, DEVICE, DTYPES[dtype], inputs, mask)
    assert routes == OTHERS[name]


def test_windows_both_ways_without_padding(routes):
    inputs = {"input_ids": tiny.tokens(2, 14, device=DEVICE), "use_cache": False}
    tiny.is_close("both ways", DEVICE, torch.bfloat16, inputs)
    assert routes == {"flash_attention": 2}


def test_masks_of_the_user_s_own(routes):
    hidden = torch.ones(14, 14, dtype=torch.bool, device=DEVICE).triu(3)
    mask = torch.zeros(2, 1, 14, 14, device=DEVICE).masked_fill(hidden, -torch.inf)
    inputs = {"input_ids": tiny.tokens(2, 14, device=DEVICE), "attention_mask": mask}
    tiny.is_close("llama", DEVICE, torch.bfloat16, inputs)
    assert routes == {"attn_mask": 2}


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_packed_sequences(name, routes):
    row = tiny.tokens(1, 20, device=DEVICE)
    starts = torch.tensor([0, 12, 20], dtype=torch.int32, device=DEVICE)
    positions = torch.cat([torch.arange(12), torch.arange(8)])[None].to(DEVICE)
    inputs = {"input_ids": row, "position_ids": positions, "use_cache": False}
    tiny.is_close(name, DEVICE, torch.bfloat16, inputs)
    model = tiny.rounded(name, DEVICE, torch.bfloat16, "kiln")
    lengths = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts}
    told = model(**inputs, **lengths, max_length_q=12, max_length_k=12).logits
    assert torch.equal(told, model(**inputs).logits)
    assert routes == {"flash_attention_varlen": 6}


def test_the_cache_may_be_filled_in_chunks(routes):
    row = tiny.tokens(1, 21, device=DEVICE)
    model = tiny.rounded("llama", DEVICE, torch.bfloat16, "kiln")
    for cache in (
        tf.DynamicCache(config=model.config),
        tf.StaticCache(config=model.config, max_cache_len=64),
    ):
        model(row[:, :9], past_key_values=cache)
        logits = model(row[:, 9:], past_key_values=cache).logits
        torch.testing.assert_close(logits, model(row).logits[:, 9:], atol=0.05, rtol=0.05)
    assert "attn_mask" not in routes


def test_a_step_of_a_static_cache_is_one_graph():
    """It takes lengths where PyTorch traces: nothing is asked of the host."""
    row = tiny.tokens(1, 12, device=DEVICE)
    model = tiny.rounded("llama", DEVICE, torch.bfloat16, "kiln")
    want = model.generate(row, max_new_tokens=4, do_sample=False, **ENDLESS)[0, 12:]
    cache = tf.StaticCache(config=model.config, max_cache_len=32)
    token = model(row, past_key_values=cache).logits[:, -1:].argmax(-1)
    graphs = []

    def keep(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    step = torch.compile(model.forward, backend=keep, fullgraph=True)
    out = [token]
    for position in range(12, 15):
        positions = torch.tensor([[position]], device=DEVICE)
        logits = step(out[-1], past_key_values=cache, position_ids=positions).logits
        out.append(logits.argmax(-1))
    assert torch.equal(torch.cat(out, 1)[0], want)
    assert len(graphs) == 1
    assert sum("kiln.flash_attention_with_kvcache" in target for target in graphs[0]) == 2


@pytest.mark.skipif(not FULL, reason="test_transformers_masks.py traces the mask alone")
def test_padding_in_a_traced_model_is_a_mask():
    row, mask = tiny.tokens(2, 12, device=DEVICE), tiny.padding("left", 2, 12, 5, DEVICE)
    model = tiny.rounded("mistral", DEVICE, torch.bfloat16, "kiln")
    traced = torch.compile(model.forward, backend="eager", fullgraph=True)
    got, want = traced(row, attention_mask=mask).logits, model(row, attention_mask=mask).logits
    torch.testing.assert_close(got[mask.bool()], want[mask.bool()], atol=0.05, rtol=0.05)


def test_continuous_batching(routes):
    model = tiny.rounded("mistral", DEVICE, torch.bfloat16, "kiln")
    rows = tiny.tokens(2, 14, device=DEVICE)  # longer than the window
    prompts = [rows[0].tolist(), rows[1, :7].tolist()]
    greedy = tf.GenerationConfig(max_new_tokens=5, do_sample=False, pad_token_id=0, **ENDLESS)
    want = [
        model.generate(torch.tensor([prompt], device=DEVICE), generation_config=greedy)[0]
        for prompt in prompts
    ]
    routes.clear()
    bridge.enable_continuous_batching(model)
    sizes = tf.ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64, use_cuda_graph=False)
    got = model.generate_batch(
        prompts, generation_config=greedy, continuous_batching_config=sizes, progress_bar=False
    )
    assert set(routes) == {"flash_attention_varlen"}
    by_prompt = {tuple(result.prompt_ids): result.generated_tokens for result in got.values()}
    for prompt, whole in zip(prompts, want):
        assert by_prompt[tuple(prompt)] == whole[len(prompt) :].tolist()


def test_what_cannot_be_served_is_refused():
    row = tiny.tokens(1, 8, device=DEVICE)
    model = tiny.rounded("gpt_oss", DEVICE, torch.bfloat16, "kiln")
    with pytest.raises(ValueError) as raised, torch.enable_grad():
        model(row)
    check(raised.value, ValueError, "requires grad, and Kiln computes the forward pass only")
    heads = torch.zeros(1, 4, 8, 32, dtype=torch.bfloat16, device=DEVICE)
    from kiln.integrations import _transformers_masks as masks

    attend = modeling_utils.ALL_ATTENTION_FUNCTIONS["kiln"]
    layer = model.model.layers[0].self_attn
    with pytest.raises(ValueError) as raised:
        attend(layer, heads, heads, heads, None, dropout=0.1)
    check(raised.value, ValueError, "dropout must be 0, got 0.1")
    with pytest.raises(ValueError) as raised:
        attend(layer, heads, heads, heads, None, output_attentions=True)
    check(raised.value, ValueError, "output_attentions cannot be served")
    packed = torch.zeros(1, masks.PACKED_CAUSAL, 1, 3, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError) as raised:
        attend(layer, heads, heads, heads, packed, position_bias=heads[..., :8])
    check(raised.value, ValueError, "position_bias cannot be given beside position_ids")


def interfaces():
    return [
        dict(interface._global_mapping)
        for interface in (
            modeling_utils.ALL_ATTENTION_FUNCTIONS,
            masking_utils.ALL_MASK_ATTENTION_FUNCTIONS,
        )
    ]


def test_registering_and_what_it_leaves():
    bridge.unregister()
    before = interfaces()
    with pytest.raises(RuntimeError) as raised:
        bridge.enable_continuous_batching(torch.nn.Module())
    check(raised.value, RuntimeError, "Kiln is not registered with transformers")
    bridge.register()
    once = interfaces()
    assert once != before
    bridge.register()
    assert interfaces() == once
    bridge.register("sdpa")
    assert interfaces()[0]["sdpa"] is once[0]["kiln"]
    bridge.unregister()
    assert interfaces()[0]["kiln_flash"] is once[0]["kiln"]  # which "sdpa" still needs
    bridge.unregister("sdpa")
    bridge.unregister("sdpa")
    assert interfaces() == before
    bridge.register()


def test_importing_imports_no_framework():
    code = (
        "import sys; from kiln.integrations import transformers\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
        "sys.modules['transformers'] = None\n"
        "transformers.register()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    check(ImportError(run.stderr), ImportError, "transformers 5 cannot be imported; pip install")


@gpu
def test_compiled_steps_in_cuda_graphs():
    """generate() compiles the steps of a static cache in PyTorch's mode reduce-overhead."""
    prompts, mask = tiny.tokens(2, 14, device=DEVICE), tiny.padding("left", 2, 14, 4, DEVICE)
    options = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False}
    model = tiny.rounded("llama", DEVICE, torch.bfloat16, "kiln")
    want = model.generate(prompts, **options, **ENDLESS)
    for _ in range(2):
        got = model.generate(prompts, **options, **ENDLESS, cache_implementation="static")
        assert (got == want).float().mean() >= 0.95


@gpu
def test_a_step_is_captured_without_waiting():
    row = tiny.tokens(1, 12, device=DEVICE)
    model = tiny.rounded("llama", DEVICE, torch.bfloat16, "kiln")
    want = model.generate(row, max_new_tokens=4, do_sample=False, **ENDLESS)[0, 12:]
    cache = tf.StaticCache(config=model.config, max_cache_len=32)
    token = model(row, past_key_values=cache).logits[:, -1:].argmax(-1)
    position = torch.tensor([[12]], device=DEVICE)

    def step():
        logits = model(token, past_key_values=cache, position_ids=position).logits
        token.copy_(logits.argmax(-1))
        position.add_(1)

    out = [int(token)]
    step()  # loads the kernels
    out.append(int(token))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(2):
        graph.replay()
        out.append(int(token))
    assert out == want.tolist()
