"""Engines that drive kiln.integrations.vllm: Kiln's own part, and vLLM's classes around it."""

import importlib
from types import SimpleNamespace

import engine_batch
import pytest
import torch
from kiln.integrations import _vllm_attention as plain

HEADS, HEADS_KV, HEAD_DIM, PAGE, PAGES, WIDTH = 4, 2, 64, 16, 40, 8


class Plain:
    """Kiln's part alone, with stand-ins of what vLLM passes."""

    impl, metadata = plain.Impl, SimpleNamespace

    def builder(self, **parallel):
        builder = plain.Builder()
        if parallel:
            builder.start_context_parallel(max_requests=9, device="cpu", **parallel)
        return builder


class Real:
    """vLLM's own base classes, metadata and KV cache spec."""

    def __init__(self):
        pytest.importorskip("vllm", reason="vLLM is not installed")
        self.backend = importlib.import_module("kiln.integrations._vllm_backend")
        self.metadata = importlib.import_module("vllm.v1.attention.backend").CommonAttentionMetadata
        self.impl = self.backend.KilnImpl

    def builder(self, layers=None, warm_up=False, **parallel):
        spec = importlib.import_module("vllm.v1.kv_cache_interface").FullAttentionSpec
        layers = layers or {}
        config = SimpleNamespace(
            parallel_config=SimpleNamespace(cp_kv_cache_interleave_size=1),
            scheduler_config=SimpleNamespace(max_num_seqs=9),
            kernel_config=SimpleNamespace(enable_jit_warmup=warm_up),
            compilation_config=SimpleNamespace(static_forward_context=layers),
            model_config=SimpleNamespace(dtype=torch.bfloat16),
        )
        cache = spec(
            block_size=PAGE, num_kv_heads=HEADS_KV, head_size=HEAD_DIM, dtype=torch.bfloat16
        )
        builder = self.backend.KilnMetadataBuilder(cache, list(layers), config, "cpu")
        if parallel:
            builder.start_context_parallel(max_requests=9, device="cpu", **parallel)
        return builder


def common(engine, batch, table, slots, causal=True):
    """The metadata of vLLM's runner: padded rows, bounds that no request reaches."""
    return engine.metadata(
        query_start_loc=batch.starts,
        query_start_loc_cpu=batch.starts,
        seq_lens=batch.seq_lens,
        num_reqs=len(batch.lengths),
        num_actual_tokens=batch.query.shape[0],
        max_query_len=batch.query.shape[0],
        max_seq_len=WIDTH * PAGE,
        block_table_tensor=table,
        slot_mapping=slots,
        causal=causal,
    )


def empty_cache(dtype, heads_first, head_dim=HEAD_DIM):
    """[pages, KV heads, page size, 2 * head_dim] of NaN, in one of vLLM's physical orders."""
    inner = (HEADS_KV, PAGE) if heads_first else (PAGE, HEADS_KV)
    # Layers lie between a page's and the next one's rows.
    whole = torch.full((PAGES, 2, *inner, 2 * head_dim), float("nan"), dtype=torch.bfloat16)
    cache = whole.to(dtype)[:, 1]
    return cache if heads_first else cache.transpose(1, 2)


def fill(impl, layer, batch, cache, table, own=lambda row, at: at):
    """Writes the keys before the step, then the new ones; returns the new ones' slots."""
    for first in (True, False):
        rows = []
        for row, positions in batch.positions(first):
            places = [own(row, at) for at in positions]
            found = [engine_batch.slots_of(table, PAGE, row, [at]) for at in places if at >= 0]
            found = iter(found)
            rows += [next(found) if at >= 0 else torch.tensor([-1]) for at in places]
        slots = torch.cat(rows)
        keys, values = (batch.packed(x, first) for x in (batch.keys, batch.values))
        impl.do_kv_cache_update(layer, keys, values, cache, slots)
    return slots
