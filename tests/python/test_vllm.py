"""Steps of kiln.integrations.vllm on the emulated device. Each is driven twice: with Kiln's own
part, and, where vLLM can be imported, with vLLM's classes around it (docs/engines.md says how)."""

import importlib
from types import SimpleNamespace

import engine_batch
import kiln
import pytest
import torch
from kiln import jit
from kiln.integrations import _vllm_attention as plain
from kiln.integrations import vllm as bridge
from message_page import check
from vllm_engines import (
    HEAD_DIM,
    HEADS,
    HEADS_KV,
    PAGE,
    PAGES,
    WIDTH,
    Plain,
    Real,
    common,
    empty_cache,
    fill,
)

E4M3 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def emulated():
    with torch.no_grad(), kiln.device("emulator:sm_80", checks=False):
        yield


@pytest.fixture(params=[Plain, Real], ids=["plain", "vllm"])
def engine(request):
    return request.param()


def step(engine, batch, causal=True, scales=(None, None), output=None, heads_first=False, **how):
    """Runs a layer on a batch, and returns the rows of its output that are no padding."""
    output_scale = how.pop("output_scale", None)
    impl = engine.impl(HEADS, HEAD_DIM, how.pop("scale", HEAD_DIM**-0.5), HEADS_KV, **how)
    layer = SimpleNamespace(_k_scale=scales[0], _v_scale=scales[1])
    dtype = plain.CACHES[how.get("kv_cache_dtype", "auto")] or torch.bfloat16
    cache = empty_cache(dtype, heads_first)
    if dtype.itemsize == 1:  # vLLM's caches of 8 bits are bytes
        cache = cache.view(torch.uint8)
    free = torch.randperm(PAGES).tolist()
    table = engine_batch.pages_of(batch.lengths, PAGE, free, WIDTH)
    slots = fill(impl, layer, batch, cache, table)
    metadata = engine.builder().build(0, common(engine, batch, table, slots, causal))
    output = torch.full_like(batch.query, 7) if output is None else output
    result = impl.forward(
        layer, batch.query, None, None, cache, metadata, output, output_scale=output_scale
    )
    assert result is output
    return output[: batch.count].float()


def close(found, expected, batch, rtol=0.0):
    assert found.isfinite().all(), f"seed {batch.seed}"
    worst = ((found - expected).abs() - rtol * expected.abs()).max().item()
    assert worst < 0.03, f"off by {worst}, seed {batch.seed}"


@pytest.mark.parametrize("heads_first", [False, True])
def test_a_mixed_batch(engine, heads_first):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    output = torch.full_like(batch.query, 7)
    found = step(engine, batch, scale=0.2, output=output, heads_first=heads_first)
    close(found, engine_batch.attention(batch, scale=0.2), batch)
    assert (output[batch.count :] == 7).all()  # rows of padding are not written


def test_window_softcap_and_sinks(engine):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    sinks = torch.tensor([1.5, -0.5, 3.0, 0.0], dtype=torch.bfloat16)
    found = step(engine, batch, sliding_window=9, logits_soft_cap=2.0, sinks=sinks)
    options = {"window": (8, 0), "softcap": 2.0, "sinks": sinks}
    close(found, engine_batch.attention(batch, **options), batch)


@pytest.mark.parametrize(
    ("name", "scales"),
    [
        ("fp8", (torch.tensor(0.01), torch.tensor(0.02))),
        ("fp8_e4m3", (torch.tensor([0.01, 0.04]), torch.tensor([0.02, 0.005]))),
        ("fp8_e5m2", (torch.tensor(0.5), torch.tensor(2.0))),
    ],
    ids=["one", "per_head", "e5m2"],
)
def test_an_8_bit_cache(engine, name, scales):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    found = step(engine, batch, kv_cache_dtype=name, scales=scales)
    kept = []
    for scale, tensors in zip(scales, (batch.keys, batch.values)):
        scale = scale.reshape(-1, 1)
        dtype = plain.CACHES[name]
        stored = [(x.float() / scale).clamp(-448, 448).to(dtype) for x in tensors]
        kept.append([x.float() * scale for x in stored])
    exact = engine_batch.attention(batch)
    batch.keys, batch.values = kept
    expected = engine_batch.attention(batch)
    close(found, expected, batch)
    assert (found - expected).abs().mean() < 0.3 * (expected - exact).abs().mean()


def test_alibi_beside_requests_that_are_causal_or_not(engine):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    flags = torch.tensor([1, 0, 1, 0, 0], dtype=torch.int32)
    slopes = [0.5, 0.25, 0.125, 0.0625]
    found = step(engine, batch, causal=flags, sliding_window=7, alibi_slopes=slopes)
    options = {"flags": flags, "window": (6, 6), "slopes": slopes}
    close(found, engine_batch.attention(batch, **options), batch)


def test_without_a_causal_mask(engine):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    for kind in ("decoder", "encoder_decoder"):
        found = step(engine, batch, causal=False, attn_type=kind)
        close(found, engine_batch.attention(batch, causal=False), batch)


def test_the_attention_layer_of_vllm():
    engine = Real()
    layers = pytest.importorskip(
        "vllm.model_executor.layers.attention.attention", exc_type=ImportError
    )
    settings = importlib.import_module("vllm.config")
    context = importlib.import_module("vllm.forward_context")
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM, padding=0)
    sinks, name = torch.randn(HEADS), "model.layers.0.attn"
    config = settings.VllmConfig(device_config=settings.DeviceConfig(device="cpu"))
    bridge.register()
    try:
        with settings.set_current_vllm_config(config):
            options = {"per_layer_sliding_window": 9, "logits_soft_cap": 2.0, "sinks": sinks}
            backend = engine.backend.KilnAttentionBackend
            layer = layers.Attention(
                HEADS, HEAD_DIM, 0.2, HEADS_KV, prefix=name, attn_backend=backend, **options
            )
    finally:
        bridge.unregister()
    layer.kv_cache = empty_cache(torch.bfloat16, False)
    table = engine_batch.pages_of(batch.lengths, PAGE, torch.randperm(PAGES).tolist(), WIDTH)
    slots = fill(layer.impl, layer, batch, layer.kv_cache, table)
    for slot in slots.tolist():  # the layer writes the new keys by itself
        layer.kv_cache[slot // PAGE, :, slot % PAGE] = float("nan")
    metadata = engine.builder().build(0, common(engine, batch, table, slots))
    new = [batch.packed(x, False).flatten(1) for x in (batch.keys, batch.values)]
    with context.set_forward_context({name: metadata}, config, slot_mapping={name: slots}):
        found = layer(batch.query.flatten(1), *new)
    options = {"scale": 0.2, "window": (8, 0), "softcap": 2.0, "sinks": sinks}
    expected = engine_batch.attention(batch, **options)
    close(found.view(expected.shape).float(), expected, batch)


@pytest.mark.parametrize("kind", ["encoder", "encoder_only"])
def test_an_encoder_needs_no_cache(engine, kind):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    new = [(x[n:]) for x, n in zip(batch.keys, batch.before)]
    batch.keys, batch.values = new, [x[n:] for x, n in zip(batch.values, batch.before)]
    batch.before = [0] * len(new)
    impl = engine.impl(HEADS, HEAD_DIM, HEAD_DIM**-0.5, HEADS_KV, sliding_window=5, attn_type=kind)
    keys, values = (batch.packed(x, False) for x in (batch.keys, batch.values))
    impl.do_kv_cache_update(None, keys, values, torch.tensor([]), None)
    metadata = engine.builder().build(0, common(engine, batch, torch.zeros(5, 1), None))
    output = torch.empty_like(batch.query)
    impl.forward(None, batch.query, keys, values, torch.tensor([]), metadata, output)
    expected = engine_batch.attention(batch, causal=False, window=(4, 4))
    close(output[: batch.count].float(), expected, batch)


def test_a_quantised_result(engine):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    output = torch.zeros(batch.query.shape, dtype=E4M3)
    found = step(engine, batch, output=output, output_scale=torch.tensor(0.01)) * 0.01
    close(found, engine_batch.attention(batch), batch, rtol=0.07)


@pytest.mark.parametrize(("interleave", "window"), [(1, None), (4, 11)])
def test_keys_spread_over_ranks(engine, interleave, window):
    world = 2
    batch = engine_batch.Batch(world * HEADS, HEADS_KV, HEAD_DIM)
    sinks = torch.randn(world * HEADS)
    shown = (-1, -1) if window is None else (window - 1, 0)
    expected = engine_batch.attention(batch, window=shown, sinks=sinks)
    parts = {}

    def run(rank):
        mine = slice(rank * HEADS, (rank + 1) * HEADS)
        impl = engine.impl(HEADS, HEAD_DIM, HEAD_DIM**-0.5, HEADS_KV, sliding_window=window)
        impl.sinks, impl.dcp_world_size, impl.dcp_rank = sinks[mine], world, rank
        impl.dcp_interleave = interleave
        impl.gather = lambda query: batch.query

        def combine(part, lse):
            parts[rank] = part.float(), lse
            both = list(parts.values())
            weights = torch.stack([lse for _, lse in both]).nan_to_num(neginf=-1e9)
            joined = sum(o * w[..., None] for (o, _), w in zip(both, torch.softmax(weights, 0)))
            return joined.bfloat16()[:, mine], torch.logsumexp(weights, 0)[:, mine]

        impl.combine = combine
        cache = empty_cache(torch.bfloat16, False)
        table = engine_batch.pages_of(batch.lengths, PAGE, torch.randperm(PAGES).tolist(), WIDTH)

        def own(row, at):
            turn, place = divmod(at, world * interleave)
            is_mine = place // interleave == rank
            return turn * interleave + place % interleave if is_mine else -1

        slots = fill(impl, None, batch, cache, table, own)
        builder = engine.builder(world_size=world, rank=rank, interleave=interleave)
        metadata = builder.build(0, common(engine, batch, table, slots))
        kept = [sum(own(row, at) >= 0 for at in range(n)) for row, n in enumerate(batch.lengths)]
        assert metadata.local_seq_lens.tolist() == kept
        assert metadata.max_local_seq_len == WIDTH * PAGE // world
        output = torch.empty_like(batch.query[:, mine])
        return impl.forward(None, batch.query[:, mine], None, None, cache, metadata, output), mine

    for rank in (0, 1, 0):  # rank 0 has both parts at its second turn
        output, mine = run(rank)
        if len(parts) == world:
            close(output[: batch.count].float(), expected[:, mine], batch)


def test_vllm_measures_memory_without_metadata(engine):
    impl = engine.impl(HEADS, HEAD_DIM, 1.0, HEADS_KV)
    output = torch.full((3, HEADS, HEAD_DIM), 7.0)
    assert impl.forward(None, output, output, output, None, None, output) is output
    assert not output.any()


def test_layers_of_a_pass_share_a_plan(engine, monkeypatch):
    """Each pass over the layers plans its own lengths, although the metadata stays."""
    planned = []
    plan = jit.plan_attention
    monkeypatch.setattr(
        jit,
        "plan_attention",
        lambda *x, **how: planned.append(how["window"]) or plan(*x, **how),
    )
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    layers = [
        (engine.impl(HEADS, HEAD_DIM, 0.125, HEADS_KV, sliding_window=window), window)
        for window in (None, 9, None, 9)
    ]
    cache = empty_cache(torch.bfloat16, False)
    table = engine_batch.pages_of(batch.lengths, PAGE, torch.randperm(PAGES).tolist(), WIDTH)
    slots = fill(layers[0][0], SimpleNamespace(), batch, cache, table)
    builder = engine.builder()
    metadata = builder.build(0, common(engine, batch, table, slots))

    def run():
        for layer, window in layers:
            output = torch.full_like(batch.query, 7)
            layer.forward(None, batch.query, None, None, cache, metadata, output)
            how = {} if window is None else {"window": (window - 1, 0)}
            close(output[: batch.count].float(), engine_batch.attention(batch, **how), batch)

    once = [(-1, -1), (8, 0)]
    run()
    assert planned == once
    run()
    assert planned == once * 2
    builder.update_draft_decode_metadata(metadata)
    layers.reverse()
    run()
    assert planned == once * 2 + once[::-1]
    other = builder.update_block_table(metadata, table, slots)
    assert not other.plans and len(metadata.plans) == 2


def test_metadata_refers_to_the_buffers_of_vllm(engine):
    batch = engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM)
    table, slots = torch.zeros(5, WIDTH, dtype=torch.int32), torch.zeros(3, dtype=torch.int64)
    builder = engine.builder()
    metadata = builder.build(0, common(engine, batch, table, slots))
    assert metadata.seq_lens is batch.seq_lens and metadata.block_table is table
    assert metadata.query_start_loc is batch.starts and metadata.slot_mapping is slots
    other = builder.update_block_table(metadata, table + 1, slots + 1)
    assert metadata.block_table is table and other.seq_lens is batch.seq_lens
    assert (other.block_table == 1).all() and (other.slot_mapping == 1).all()


REFUSED = [
    ({"head_size": 100}, "head dim must be a multiple of 8 up to 256, or 512, got 100"),
    ({"num_kv_heads": 3}, "the 4 heads must be a multiple of the 3 KV heads"),
    ({"attn_type": "tree"}, "attn_type must be one of decoder, encoder_decoder"),
    ({"kv_cache_dtype": "nvfp4"}, "dtype must be one of auto, float16"),
    ({"logits_soft_cap": 2e3}, "logits_soft_cap must be at most 1000, got 2000.0"),
    ({"sinks": torch.zeros(3)}, "sinks must have one number for each of 4 heads, got [3]"),
]


@pytest.mark.parametrize(("option", "text"), REFUSED)
def test_a_layer_without_kernels_is_refused_at_construction(engine, option, text):
    arguments = {"num_heads": 4, "head_size": 64, "scale": 1.0, "num_kv_heads": 2, **option}
    with pytest.raises(ValueError) as raised:
        engine.impl(**arguments)
    check(raised.value, ValueError, text)


def test_what_only_a_call_can_show_is_refused(engine, monkeypatch):
    monkeypatch.setattr(plain.Impl, "dcp_world_size", 2)
    parts = engine.impl.__new__(engine.impl)
    parts.dcp_world_size = 2
    for option, text in (
        ({"alibi_slopes": [1.0] * 4}, "ALiBi slopes of all ranks' heads"),
        ({"attn_type": "encoder_decoder"}, "cross attention is not spread over ranks"),
    ):
        with pytest.raises(ValueError) as raised:
            plain.Impl.__init__(parts, 4, 64, 1.0, 2, **option)
        check(raised.value, ValueError, text)
    with pytest.raises(ValueError) as raised:
        plain.Impl(4, 64, 1.0, 2).forward(*[None] * 8, output_block_scale=torch.ones(1))
    check(raised.value, ValueError, "output_block_scale cannot be served")
    flags = SimpleNamespace(causal=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError) as raised:
        engine.builder().build(0, flags)
    check(raised.value, ValueError, "causal flags of requests must be int32, got torch.bool")
