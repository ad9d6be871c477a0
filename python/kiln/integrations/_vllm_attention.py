"""Attention of vLLM's layers: all that needs none of vLLM's own classes.

_vllm_backend.py makes vLLM's classes of these. Between a layer's tensors and Kiln there are only
views: lengths, pages and flags stay on the device, nothing waits for it, and rows of a padded batch
are passed as they are, because Kiln neither reads nor writes rows behind the last request.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import jit
from ._limits import LARGEST_SOFTCAP, is_head_dim
from ._plans import Plans

_HALF = (torch.float16, torch.bfloat16)
# None: the keys have the queries' dtype.
CACHES: dict[str, Any] = {
    "auto": None,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}
ENCODERS = ("encoder", "encoder_only")
KINDS = ("decoder", "encoder_decoder", *ENCODERS)


@dataclass
class Metadata:
    """A step's lengths, as the calls of all layers of one KV cache group take them.

    The names are those of vLLM's own backends, some of which its speculators read.
    """

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: torch.Tensor
    max_seq_len: int
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool | torch.Tensor
    num_splits: int = 0
    # Decode context parallelism: how many keys of each request this rank has, and a bound of them.
    local_seq_lens: torch.Tensor | None = None
    max_local_seq_len: int = 0
    plans: Plans = field(default_factory=Plans)


def cache_reason(dtype: torch.dtype, kv_cache_dtype: str | None) -> str | None:
    """Returns why a KV cache does not suit queries of a dtype, or None."""
    stored = CACHES.get(kv_cache_dtype or "auto")
    if stored in _HALF and stored != dtype:
        return (
            f"a KV cache in {kv_cache_dtype} needs a model in {kv_cache_dtype}, got {dtype}; "
            "leave --kv-cache-dtype at auto, or take an fp8 one"
        )
    return None


class Builder:
    """Makes a step's Metadata. What vLLM's builder of this name has is set by its constructor."""

    dcp_world_size = 1
    dcp_rank = 0
    dcp_interleave = 1
    num_splits = 0
    _local_seq_lens: torch.Tensor | None = None

    def start_context_parallel(
        self, world_size: int, rank: int, interleave: int, max_requests: int, device: Any
    ) -> None:
        """Prepares for ranks that each have a part of a request's keys."""
        self.dcp_world_size, self.dcp_rank, self.dcp_interleave = world_size, rank, interleave
        if world_size > 1:
            # A graph that was captured reads each step's numbers from here.
            self._local_seq_lens = torch.zeros(max_requests, dtype=torch.int32, device=device)

    def build(
        self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> Metadata:
        """Returns the metadata of a step: references to vLLM's tensors, and bounds."""
        common = common_attn_metadata
        causal = common.causal
        if isinstance(causal, torch.Tensor) and causal.dtype != torch.int32:
            raise ValueError(
                "kiln.integrations.vllm: causal flags of requests must be int32, got "
                f"{causal.dtype}; let the caller keep them in an int32 tensor, because a copy "
                "would leave a captured graph with old ones"
            )
        metadata = Metadata(
            num_actual_tokens=common.num_actual_tokens,
            max_query_len=common.max_query_len,
            query_start_loc=common.query_start_loc,
            max_seq_len=common.max_seq_len,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            slot_mapping=common.slot_mapping,
            causal=causal,
            num_splits=self.num_splits,
        )
        if self._local_seq_lens is not None:
            self._tell_local_lengths(metadata, self._local_seq_lens)
        return metadata

    def update_block_table(self, metadata: Any, blk_table: Any, slot_mapping: Any) -> Any:
        """Returns the metadata of another group, whose requests have the same lengths."""
        other = copy.copy(metadata)
        other.plans = Plans()
        other.block_table, other.slot_mapping = blk_table, slot_mapping
        return other

    def update_draft_decode_metadata(self, metadata: Any) -> None:
        """Drops the plans, which are of the lengths before; all else that the metadata has are
        references to the tensors that vLLM updates in place."""
        metadata.plans.clear()

    def _tell_local_lengths(self, metadata: Metadata, buffer: torch.Tensor) -> None:
        run = self.dcp_interleave
        turn = run * self.dcp_world_size
        local = buffer[: metadata.seq_lens.shape[0]]
        rest = (metadata.seq_lens % turn - self.dcp_rank * run).clamp_(0, run)
        local.copy_(metadata.seq_lens // turn * run + rest)
        metadata.local_seq_lens = local
        metadata.max_local_seq_len = -(-metadata.max_seq_len // turn) * run


class Impl:
    """The attention of one layer, with the methods and attributes of vLLM's AttentionImpl."""

    dcp_world_size = 1
    dcp_rank = 0
    dcp_interleave = 1

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = "decoder",
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.num_queries_per_kv = self.num_heads // self.num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.logits_soft_cap = float(logits_soft_cap or 0)
        self.attn_type = getattr(attn_type, "value", attn_type)
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks = sinks
        self.alibi_slopes: torch.Tensor | None = None
        if alibi_slopes is not None:
            self.alibi_slopes = torch.tensor(alibi_slopes, dtype=torch.float32)
        self._check()
        self._stored = CACHES[kv_cache_dtype]
        self._quantised = self._stored is not None and self._stored not in _HALF
        before = -1 if sliding_window is None else sliding_window - 1
        is_symmetric = self.attn_type in ENCODERS
        self.sliding_window = (before, before if is_symmetric or before < 0 else 0)
        self._both_sides = (before, before)  # where a request's queries see later keys, too

    def _check(self) -> None:
        """Raises ValueError for a layer that has no kernels, so that forward() has none to find."""
        for reason in self._reasons():
            raise ValueError(
                f"kiln.integrations.vllm: {reason}; choose another --attention-backend for this "
                "model"
            )

    def _reasons(self) -> list[str]:
        reasons = []
        if not is_head_dim(self.head_size):
            reasons.append(
                f"the head dim must be a multiple of 8 up to 256, or 512, got {self.head_size}"
            )
        if self.num_heads % self.num_kv_heads:
            reasons.append(
                f"the {self.num_heads} heads must be a multiple of the {self.num_kv_heads} KV heads"
            )
        if self.attn_type not in KINDS:
            reasons.append(f"attn_type must be one of {', '.join(KINDS)}, got {self.attn_type!r}")
        if self.kv_cache_dtype not in CACHES:
            reasons.append(
                f"the KV cache's dtype must be one of {', '.join(CACHES)}, "
                f"got {self.kv_cache_dtype!r}"
            )
        if not 0 <= self.logits_soft_cap <= LARGEST_SOFTCAP:
            reasons.append(f"logits_soft_cap must be at most 1000, got {self.logits_soft_cap}")
        if self.sinks is not None and tuple(self.sinks.shape) != (self.num_heads,):
            reasons.append(
                f"sinks must have one number for each of {self.num_heads} heads, got "
                f"{list(self.sinks.shape)}"
            )
        if self.dcp_world_size > 1 and self.alibi_slopes is not None:
            reasons.append("ALiBi slopes of all ranks' heads are not known to one rank")
        if self.dcp_world_size > 1 and self.attn_type == "encoder_decoder":
            reasons.append("cross attention is not spread over ranks")
        return reasons

    def do_kv_cache_update(
        self, layer: Any, key: Any, value: Any, kv_cache: Any, slot_mapping: Any
    ) -> None:
        """Writes the new keys and values to their slots; a slot of -1 is none."""
        if self.attn_type in ENCODERS:
            return
        keys, values = self._caches(kv_cache)
        jit.append_kv(key, value, keys, values, slot_mapping, **self._scales(layer))

    def forward(
        self,
        layer: Any,
        query: Any,
        key: Any,
        value: Any,
        kv_cache: Any,
        attn_metadata: Any,
        output: Any,
        output_scale: Any = None,
        output_block_scale: Any = None,
    ) -> Any:
        """Writes the attention of a step to output, and returns it.

        query         [tokens, heads, head dim]
        key, value    [tokens, KV heads, head dim]: of encoders; others read the cache
        kv_cache      [pages, KV heads, page size, 2 * head dim], of any strides
        output        [tokens, heads, head dim]; with output_scale, float8_e4m3fn
        """
        if output_block_scale is not None:
            raise ValueError(
                "kiln.integrations.vllm: output_block_scale cannot be served, because results are "
                "quantised with one scale; disable the fusion of attention with block quantisation"
            )
        if attn_metadata is None:  # vLLM measures its memory
            return output.fill_(0)
        options = self._options(attn_metadata)
        options.update(out=output, out_scale=output_scale)
        if self.attn_type in ENCODERS:
            _encode(query, key, value, attn_metadata, options)
            return output
        keys, values = self._caches(kv_cache)
        options.update(self._scales(layer), causal=attn_metadata.causal)
        if attn_metadata.local_seq_lens is not None:
            return self._forward_part(query, keys, values, attn_metadata, options)
        options.update(seqused_k=attn_metadata.seq_lens, max_seqlen_k=attn_metadata.max_seq_len)
        plan = attn_metadata.plans.plan(self, query, keys, values, options)
        jit.flash_attention_varlen(query, keys, values, plan=plan, **options)
        return output

    def _forward_part(
        self, query: Any, keys: Any, values: Any, metadata: Metadata, options: dict[str, Any]
    ) -> Any:
        """Attends with all ranks' queries to this rank's keys, and joins the ranks' results.

        The new keys lie in the caches of their ranks already, and Kiln knows the position of each
        key, so that one call serves decoding and prefill, causal and windowed."""
        output = options.pop("out")
        sinks = options.pop("sinks")
        options.update(
            seqused_k=metadata.local_seq_lens,
            max_seqlen_k=metadata.max_local_seq_len,
            cp_world=self.dcp_world_size,
            cp_rank=self.dcp_rank,
            cp_interleave=self.dcp_interleave,
            cp_seqused_k_total=metadata.seq_lens,
            return_lse=True,
        )
        part, lse = jit.flash_attention_varlen(self.gather(query), keys, values, **options)
        joined, lse = self.combine(part, lse.transpose(0, 1))
        if sinks is None:
            output.copy_(joined)
        else:  # a sink counts once, so the ranks left it out
            jit.merge_states(joined[None], lse[None], layout="th", sinks=sinks, out=output)
        return output

    def gather(self, query: Any) -> Any:
        """Returns the queries of all ranks' heads."""
        raise NotImplementedError

    def combine(self, part: Any, lse: Any) -> tuple[Any, Any]:
        """Returns the result of this rank's heads over all ranks' keys, and its log-sum-exp
        [tokens, heads]."""
        raise NotImplementedError

    def _options(self, metadata: Metadata) -> dict[str, Any]:
        is_causal = metadata.causal is True
        return {
            "cu_seqlens_q": metadata.query_start_loc,
            "max_seqlen_q": metadata.max_query_len,
            "block_table": metadata.block_table,
            "scale": self.scale,
            "window": self.sliding_window if is_causal else self._both_sides,
            "softcap": self.logits_soft_cap,
            "sinks": self.sinks,
            "alibi_slopes": self.alibi_slopes,
            "num_splits": metadata.num_splits,
        }

    def _caches(self, kv_cache: Any) -> tuple[Any, Any]:
        """Returns the keys and the values of a cache, [pages, page size, KV heads, head dim]."""
        if self._quantised and kv_cache.dtype != self._stored:
            kv_cache = kv_cache.view(self._stored)
        cache = kv_cache.transpose(1, 2)
        return cache[..., : self.head_size], cache[..., self.head_size :]

    def _scales(self, layer: Any) -> dict[str, Any]:
        """The scales of a quantised cache, one number or one for each KV head."""
        if not self._quantised:
            return {}
        return {"k_scale": layer._k_scale, "v_scale": layer._v_scale}


def _encode(query: Any, key: Any, value: Any, metadata: Metadata, options: dict[str, Any]) -> None:
    """Attends to the keys of the step itself, in both directions."""
    options.update(block_table=None, causal=False, cu_seqlens_k=metadata.query_start_loc)
    options["max_seqlen_k"] = metadata.max_query_len
    jit.flash_attention_varlen(query, key, value, **options)
