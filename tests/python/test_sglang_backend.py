"""SGLang's attention backend kiln on the emulated device, driven by SGLang's own layers, batches
and pools; docs/engines.md says how to install what that takes."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import engine_batch
import kiln
import pytest
import torch
from kiln.integrations import sglang as bridge
from message_page import check

pytest.importorskip("sglang.srt.layers.attention.attention_registry",
                    reason="SGLang is not installed", exc_type=ImportError)  # fmt: skip

from sglang.srt.arg_groups import choices
from sglang.srt.layers.attention import attention_registry
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.eagle_info import EagleVerifyInput
from sglang_engine import (
    CONTEXT,
    HEAD_DIM,
    HEADS,
    HEADS_KV,
    AttentionType,
    Engine,
    ForwardMode,
    radix_layer,
    settings,
)

E4M3 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def emulated():
    bridge.register()
    with torch.no_grad(), kiln.device("emulator:sm_80", checks=False), settings():
        yield
    bridge.unregister()


def make(**options):
    return Engine(attention_registry.ATTENTION_BACKENDS["kiln"], **options)


def requests():
    return engine_batch.Batch(HEADS, HEADS_KV, HEAD_DIM, padding=0)


def close(found, expected, batch=None):
    assert found.isfinite().all()
    worst = (found - expected.view(found.shape)).abs().max().item()
    assert worst < 0.03, f"off by {worst}, seed {batch and batch.seed}"


def test_the_name_comes_and_goes():
    assert choices.ATTENTION_BACKEND_CHOICES.count("kiln") == 1
    bridge.register()
    assert choices.ATTENTION_BACKEND_CHOICES.count("kiln") == 1
    assert "kiln" in choices.DETERMINISTIC_ATTENTION_BACKEND_CHOICES
    bridge.unregister()
    assert "kiln" not in choices.ATTENTION_BACKEND_CHOICES
    assert "kiln" not in attention_registry.ATTENTION_BACKENDS
    bridge.unregister()
    attention_registry.ATTENTION_BACKENDS["kiln"] = somebody = object()
    bridge.unregister()
    assert attention_registry.ATTENTION_BACKENDS.pop("kiln") is somebody


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("mode", [ForwardMode.EXTEND, ForwardMode.MIXED], ids=["extend", "mixed"])
def test_prefill_beside_chunks_and_decodes(page_size, mode):
    batch = requests()
    found = make(page_size=page_size).extend(radix_layer(scaling=0.2), batch, mode)
    close(found, engine_batch.attention(batch, scale=0.2), batch)


def test_lengths_that_the_host_does_not_know():
    batch = requests()
    close(make().extend(radix_layer(), batch, hosts=False), engine_batch.attention(batch), batch)


def test_the_same_as_sglangs_torch_native():
    batch, layer = requests(), radix_layer()
    torch.manual_seed(batch.seed)
    mine = make().extend(layer, batch)
    theirs = Engine(TorchNativeAttnBackend).extend(layer, batch)
    close(mine, theirs, batch)


def test_window_softcap_and_sinks():
    batch = requests()
    sinks = torch.tensor([1.5, -0.5, 3.0, 0.0], dtype=torch.bfloat16)
    layer = radix_layer(sliding_window_size=8, logit_cap=2.0)
    found = make().extend(layer, batch, sinks=sinks)
    options = {"window": (8, 0), "softcap": 2.0, "sinks": sinks}
    close(found, engine_batch.attention(batch, **options), batch)


@pytest.mark.parametrize("kind", [AttentionType.ENCODER_ONLY, AttentionType.DECODER_BIDIRECTIONAL])
def test_both_directions(kind):
    batch = requests()
    batch.before = [0] * len(batch.new)  # whole sequences
    batch.lengths = batch.new
    batch.keys, batch.values = ([x[: len(x) - 0][-n:] if n else x[:0]
                                 for x, n in zip(tensors, batch.new)]
                                for tensors in (batch.keys, batch.values))  # fmt: skip
    found = make().extend(radix_layer(attn_type=kind, sliding_window_size=6), batch)
    close(found, engine_batch.attention(batch, causal=False, window=(6, 6)), batch)


def decode(engine, layer, lengths, **options):
    """A step of one new token for each request. Returns (found, expected)."""
    torch.manual_seed(sum(lengths))
    rows = engine.place(lengths)
    keys, values = ([torch.randn(n, HEADS_KV, HEAD_DIM).bfloat16() for n in lengths]
                    for _ in range(2))  # fmt: skip
    engine.fill(layer, rows, keys, values, [n - 1 for n in lengths])
    q = torch.randn(len(lengths), HEADS, HEAD_DIM).bfloat16()
    slots = torch.cat([engine.slots(row, [n - 1]) for row, n in zip(rows, lengths)])
    batch = engine.batch(ForwardMode.DECODE, rows, lengths, slots)
    new = [torch.stack([x[-1] for x in tensors]) for tensors in (keys, values)]
    expected = torch.cat([
        engine_batch._one(q[i : i + 1].float(), k.float(), v.float(), True, **options)
        for i, (k, v) in enumerate(zip(keys, values))
    ])  # fmt: skip
    return batch, q, *new, expected


@pytest.mark.parametrize("page_size", [1, 16])
def test_decode(page_size):
    engine, layer = make(page_size=page_size), radix_layer()
    batch, q, k, v, expected = decode(engine, layer, [1, 40, 113])
    close(engine.run(layer, batch, q, k, v), expected)


def test_layers_with_windows_have_a_pool_of_their_own():
    engine = make(windows=True, sliding_window_size=20)
    for number, window in ((0, -1), (1, 20)):
        layer = radix_layer(number, sliding_window_size=window)
        options = {"window": (window, 0)} if window >= 0 else {}
        batch, q, k, v, expected = decode(engine, layer, [90, 7], **options)
        close(engine.run(layer, batch, q, k, v), expected)


def test_an_8_bit_cache():
    engine, layer = make(dtype=E4M3), radix_layer()
    layer.k_scale, layer.v_scale = torch.tensor(0.02), torch.tensor(0.01)
    batch, q, k, v, expected = decode(engine, layer, [33, 80])
    before = k.clone()
    found = engine.run(layer, batch, q, k, v)
    assert (found - expected).abs().max() < 0.15  # of values of three bits
    assert torch.equal(k, before)  # writing has not scaled them in place


def test_a_decode_of_a_graph_follows_the_buffers():
    """The step's tensors are those of the capture, whatever requests are replayed."""
    engine, layer = make(), radix_layer()
    engine.backend.init_cuda_graph_state(4, 4)
    first, *_ = decode(engine, layer, [5, 100, 17])
    engine.backend.init_forward_metadata_out_graph(first, in_capture=True)
    engine.backend.init_forward_metadata_in_graph(first)
    captured = engine.backend.forward_metadata
    batch, q, k, v, expected = decode(engine, layer, [80, 1, 64])
    engine.backend.init_forward_metadata_out_graph(batch)
    assert engine.backend.forward_metadata is captured
    where = captured.keys.table.data_ptr(), captured.keys.lengths.data_ptr()
    engine.backend.init_forward_metadata_in_graph(batch)
    assert (captured.keys.table.data_ptr(), captured.keys.lengths.data_ptr()) == where
    assert captured.keys.table.shape[1] * engine.page_size == CONTEXT
    close(engine.attend(layer, batch, q, k, v), expected)
    assert engine.backend.get_cuda_graph_seq_len_fill_value() == 1


def verify(engine, layer, before, parents, full_mask=False, own=False):
    """A step that verifies a tree of drafts for each request. Returns (found, expected)."""
    drafts, count = len(parents), len(before)
    seen = torch.eye(drafts, dtype=torch.bool)
    for node, parent in enumerate(parents[1:], 1):
        seen[node] |= seen[parent]
    torch.manual_seed(drafts)
    rows = engine.place([n + drafts for n in before])
    keys, values = ([torch.randn(n + drafts, HEADS_KV, HEAD_DIM).bfloat16() for n in before]
                    for _ in range(2))  # fmt: skip
    engine.fill(layer, rows, keys, values, before)
    q = torch.randn(count * drafts, HEADS, HEAD_DIM).bfloat16()
    masks = [torch.cat([torch.ones(drafts, n, dtype=torch.bool), seen], 1) for n in before]
    mask = torch.cat([m.flatten() for m in masks]) if full_mask else seen.repeat(count, 1).flatten()
    if own:
        engine.backend.verify_mask.buffer[: mask.numel()] = mask
        mask = engine.backend.verify_mask.buffer
    is_chain = parents == [0, *range(drafts - 1)]
    spec = EagleVerifyInput(
        draft_token=None, custom_mask=mask, positions=None, retrieve_index=None,
        retrieve_next_token=None, retrieve_next_sibling=None, retrieve_cum_len=None,
        spec_steps=3, topk=1 if is_chain else 2, draft_token_num=drafts,
        capture_hidden_mode=CaptureHiddenMode.FULL, seq_lens_sum=sum(before), seq_lens_cpu=None,
    )  # fmt: skip
    slots = torch.cat([engine.slots(row, range(n, n + drafts)) for row, n in zip(rows, before)])
    batch = engine.batch(ForwardMode.TARGET_VERIFY, rows, before, slots, spec_info=spec)
    new = [torch.cat([x[n:] for x, n in zip(tensors, before)]) for tensors in (keys, values)]
    expected = []
    for i, (k, v, m) in enumerate(zip(keys, values, masks)):
        for j in range(drafts):
            one = q[i * drafts + j][None].float()
            expected.append(engine_batch._one(one, k[m[j]].float(), v[m[j]].float(), False))
    return batch, q, *new, torch.cat(expected)


@pytest.mark.parametrize("full_mask", [False, True], ids=["drafts", "all_keys"])
def test_a_tree_of_drafts(full_mask):
    engine, layer = make(), radix_layer()
    batch, q, k, v, expected = verify(engine, layer, [30, 0, 71], [0, 0, 0, 1, 1, 2], full_mask)
    close(engine.run(layer, batch, q, k, v), expected)


def test_drafts_in_one_line_are_causal():
    engine, layer = make(), radix_layer(sliding_window_size=200)
    batch, q, k, v, expected = verify(engine, layer, [30, 8], [0, 0, 1, 2])
    close(engine.run(layer, batch, q, k, v), expected)


def test_a_tree_in_a_graph():
    with settings(speculative_num_draft_tokens=6, speculative_eagle_topk=2):
        engine, layer = make(), radix_layer()
        mask = engine.backend.verify_mask
        assert mask.is_read and mask.mode.name == "QLEN_ONLY" and mask.fits(12)
        engine.backend.init_cuda_graph_state(4, 24)
        for own, parents in ((True, [0, 0, 0, 1, 1, 2]), (False, [0, 0, 1, 1, 3, 3])):
            batch, q, k, v, expected = verify(engine, layer, [30, 71], parents, own=own)
            engine.backend.init_forward_metadata_out_graph(batch)
            engine.backend.init_forward_metadata_in_graph(batch)
            close(engine.attend(layer, batch, q, k, v), expected)


def test_a_draft_model_extends():
    batch = requests()
    found = make(is_draft_worker=True).extend(radix_layer(), batch, ForwardMode.DRAFT_EXTEND_V2)
    close(found, engine_batch.attention(batch), batch)


def test_an_idle_rank():
    engine, layer = make(), radix_layer()
    batch = engine.batch(ForwardMode.IDLE, torch.zeros(0, dtype=torch.int64), [], torch.zeros(0))
    none = torch.zeros(0, HEADS, HEAD_DIM, dtype=torch.bfloat16)
    assert engine.run(layer, batch, none, none[:, :HEADS_KV], none[:, :HEADS_KV]).shape[0] == 0


def test_cross_attention():
    """A decode of an encoder-decoder model: a request's row has the encoder's tokens first."""
    config = type("config", (), {"is_encoder_decoder": True})
    engine = make(page_size=1, model_config=config)
    lengths, encoder = [9, 1, 30], [40, 0, 5]
    rows = engine.place([a + b for a, b in zip(lengths, encoder)])
    torch.manual_seed(1)
    q = torch.randn(len(rows), HEADS, HEAD_DIM).bfloat16()
    cross, text = radix_layer(0, is_cross_attention=True), radix_layer(1)
    expected = {0: [], 1: []}
    keys, values = torch.randn(2, CONTEXT, HEADS_KV, HEAD_DIM).bfloat16()
    for i, (row, n, m) in enumerate(zip(rows, lengths, encoder)):
        if m:
            engine.write(cross, engine.slots(row, range(m)), keys[:m], values[:m])
        engine.write(text, engine.slots(row, range(m, m + n)), keys[:n], values[:n])
        for number, count in ((0, m), (1, n)):
            one = (q[i : i + 1].float(), keys[:count].float(), values[:count].float(), False)
            expected[number].append(engine_batch._one(*one) if count else torch.zeros(1, HEADS, 64))
    slots = torch.cat([engine.slots(row, [m + n - 1]) for row, n, m in zip(rows, lengths, encoder)])
    batch = engine.batch(
        ForwardMode.DECODE, rows, lengths, slots, encoder_lens=torch.tensor(encoder),
        encoder_lens_cpu=encoder,
    )  # fmt: skip
    close(engine.run(cross, batch, q, None, None, save_kv_cache=False), torch.cat(expected[0]))
    close(engine.run(text, batch, q, None, None, save_kv_cache=False), torch.cat(expected[1]))


def test_one_order_of_sums():
    with settings(enable_deterministic_inference=True):
        engine, layer = make(), radix_layer()
        batch, q, k, v, expected = decode(engine, layer, [100, 3])
        together = engine.run(layer, batch, q, k, v)
        assert engine.backend.forward_metadata.num_splits == 1
        close(together, expected)
        batch, q2, k2, v2, _ = decode(engine, layer, [100, 3])
        one = engine.batch(ForwardMode.DECODE, batch.req_pool_indices[:1], [100],
                           batch.out_cache_loc[:1])  # fmt: skip
        assert torch.equal(engine.run(layer, one, q2[:1], k2[:1], v2[:1]), together[:1])


def test_models_that_are_refused():
    latent = {"use_mla_backend": True}
    cross = {"model_config": type("config", (), {"is_encoder_decoder": True})}
    for options, words in [
        (latent, "latent attention (MLA) is not served"),
        (cross, "cross attention needs --page-size 1, got 16"),
        ({"dtype": torch.float32}, "the KV cache must be 16-bit, fp8_e4m3 or fp8_e5m2, got"),
    ]:
        with pytest.raises(ValueError) as refused:
            make(**options)
        check(refused.value, ValueError, words)
    with settings(speculative_num_draft_tokens=8, speculative_eagle_topk=4):
        with pytest.raises(ValueError) as refused:
            make(sliding_window_size=100)
        check(refused.value, ValueError, "trees of drafts are not served beside windows")
    with settings(speculative_num_draft_tokens=65, speculative_eagle_topk=4):
        with pytest.raises(ValueError) as refused:
            make()
        check(refused.value, ValueError, "a tree has at most 64 drafts, got 65")


def test_layers_that_are_refused():
    engine = make()
    for options, words in [
        ({"logit_cap": 2000.0}, "logit_cap must be at most 1000, got 2000.0"),
        ({"logit_cap": 2.0, "logit_capping_method": "sigmoid"}, "capped by tanh alone"),
        ({"v_head_dim": 100}, "the value head dim must be a multiple of 8 up to 256, or 512"),
        ({"use_irope": True}, "chunked attention (iRoPE) is not served"),
        ({"pos_encoding_mode": "ALIBI"}, "pos_encoding_mode must be NONE, got ALIBI"),
    ]:
        batch, q, k, v, _ = decode(engine, radix_layer(), [4])
        with pytest.raises(ValueError) as refused:
            engine.run(radix_layer(1, **options), batch, q, None, None)
        check(refused.value, ValueError, words)
    batch, q, k, v, _ = decode(engine, radix_layer(), [4])
    with pytest.raises(ValueError) as refused:
        engine.run(radix_layer(), batch, q, k, v, score_mod=1)
    check(refused.value, ValueError, "attention with score_mod is not served")


@pytest.mark.slow
def test_an_engine_generates_as_with_torch_native(tmp_path):
    """SGLang's whole engine, which finds Kiln by its entry point."""
    if importlib.util.find_spec("xgrammar") is None:
        pytest.skip("SGLang's engine needs more packages than its classes: xgrammar is missing")
    program = pathlib.Path(__file__).parents[1] / "support/sglang_model.py"
    answers = []
    for backend in ("torch_native", "kiln"):
        run = subprocess.run(
            [sys.executable, program, tmp_path, backend, "16"], capture_output=True, text=True,
            env={**os.environ, "KILN_DEVICE": "emulator:sm_80,checks=off"}, timeout=300,
        )  # fmt: skip
        found = [line for line in run.stdout.splitlines() if line.startswith('[{"cached"')]
        assert found, run.stderr[-4000:]
        answers.append(json.loads(found[0]))
    assert max(one["cached"] for one in answers[1]) == 48  # behind a prefix of three pages
    for theirs, mine in zip(*answers, strict=True):
        assert theirs["cached"] == mine["cached"] and len(mine["tokens"]) == 24
        for (a, logprob), (b, other) in zip(theirs["tokens"], mine["tokens"]):
            assert abs(logprob - other) < 0.2
            if a != b:
                break  # as likely as each other, but what follows is another text
