"""SGLang's attention backend with Kiln's attention. The registry's factory in sglang.py imports
this module when a model runner asks for the backend."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.attention.verify_mask import VerifyMask
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec
from sglang.srt.speculative.eagle_utils import TreeMaskMode

from . import _sglang_attention as attention
from ._limits import LARGEST_SOFTCAP, is_head_dim

_BIDIRECTIONAL = (AttentionType.ENCODER_ONLY, AttentionType.DECODER_BIDIRECTIONAL)


class KilnAttnBackend(AttentionBackend):
    """Attention of a model runner's layers.

    A step's lengths and pages are copied from SGLang's tables to tensors of the backend, on the
    device, and of a step in a CUDA graph within the graph: nothing waits for the device, and a
    replay reads nothing of the scheduler's tables once its first kernels have run.
    """

    needs_cpu_seq_lens = False

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.device = runner.device
        self.page_size = runner.page_size
        self.req_to_token_pool = runner.req_to_token_pool
        self.req_to_token = runner.req_to_token_pool.req_to_token
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.max_context_len = self.req_to_token.shape[1]
        self._has_windows = isinstance(self.token_to_kv_pool, SWAKVPool)
        self._num_splits = int(bool(get_exec().deterministic.enable_deterministic_inference))
        self._drafts = get_spec().speculative_num_draft_tokens or 0
        has_tree = (get_spec().speculative_eagle_topk or 1) > 1
        _refuse(_reasons(self, runner, has_tree))
        self._verify_mask: VerifyMask | None = None
        if self._drafts and not runner.is_draft_worker:
            requests = runner.req_to_token_pool.size
            self._verify_mask = VerifyMask(
                buffer=torch.zeros(
                    requests * self._drafts**2, dtype=torch.bool, device=self.device
                ),
                mode=TreeMaskMode.QLEN_ONLY,
                max_bs=requests,
                is_read=has_tree,
            )
        self._layers: dict[tuple[Any, bool], attention.Layer] = {}
        self._buffers: dict[str, torch.Tensor] = {}
        self._graph_steps: dict[Any, attention.Step] = {}

    @property
    def verify_mask(self) -> VerifyMask | None:
        return self._verify_mask

    def update_verify_buffers_to_fill_after_draft(self, spec_info: Any, cuda_graph_bs: Any) -> None:
        """Does nothing: a step reads the mask that the drafts have filled."""

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    # ---------------------------------------------------------------------------------- a step

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Makes the step of a batch that runs outside of a graph."""
        mode = forward_batch.forward_mode
        if mode.is_idle():
            self.forward_metadata = None
            return
        if mode.is_dllm_extend():
            _refuse(["block diffusion is not served"])
        queries = self._queries_of(forward_batch)
        width = self._longest(forward_batch, queries if mode.is_target_verify() else 0)
        step = attention.Step(
            keys=self._keys_of(forward_batch, queries, width),
            queries=queries,
            encoder=self._encoder_of(forward_batch),
            words=self._words_of(forward_batch, queries),
            window_slots=self._window_slots_of(forward_batch),
            num_splits=self._num_splits,
        )
        if queries:
            step.tokens = forward_batch.batch_size * queries
        else:
            lengths = forward_batch.extend_seq_lens
            step.starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
            on_host = forward_batch.extend_seq_lens_cpu
            step.tokens = forward_batch.extend_num_tokens
            if on_host is not None:
                step.tokens, step.max_queries = int(sum(on_host)), int(max(on_host))
            else:
                step.max_queries = step.tokens or forward_batch.input_ids.shape[0]
        self.forward_metadata = step

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Allocates what the steps of all graphs share: each is replayed before the next is
        prepared."""
        pages = -(-self.max_context_len // self.page_size)
        numbers = {"lengths": (max_bs,), "table": (max_bs, pages)}
        if self._has_windows:
            numbers["window_table"] = (max_bs, pages)
        self._buffers = {
            name: torch.zeros(shape, dtype=torch.int32, device=self.device)
            for name, shape in numbers.items()
        }
        for name in ("words", "window_slots"):
            self._buffers[name] = torch.zeros(max_num_tokens, dtype=torch.int64, device=self.device)
        self._graph_steps = {}

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Names the step whose tensors the graph of such a batch refers to."""
        if forward_batch.encoder_lens is not None:
            _refuse(["CUDA graphs of models with cross attention are not served"])
        queries = self._queries_of(forward_batch)
        if queries == 0:
            _refuse([f"CUDA graphs of {forward_batch.forward_mode.name} are not served"])
        has_tree = self._has_tree(forward_batch)
        requests = forward_batch.batch_size
        key = (requests, queries, has_tree)
        if key not in self._graph_steps:
            self._graph_steps[key] = self._graph_step(requests, queries, has_tree)
        self.forward_metadata = self._graph_steps[key]
        if has_tree:
            self._keep_mask(forward_batch, queries)

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """Fills the step's tensors, on the device."""
        step = self.forward_metadata
        assert isinstance(step, attention.Step)
        drafts = None
        if step.words is not None and self._verify_mask is not None:
            mask = self._verify_mask.buffer[: step.words.numel() * step.queries]
            drafts = mask.view(*step.words.shape, step.queries)
        attention.refill(
            step,
            self._keys_of(forward_batch, step.queries, self.max_context_len),
            drafts,
            self._window_slots_of(forward_batch),
        )

    def _graph_step(self, requests: int, queries: int, has_tree: bool) -> attention.Step:
        buffers, tokens = self._buffers, requests * queries
        words = buffers["words"][:tokens].view(requests, queries) if has_tree else None
        window_table = buffers["window_table"][:requests] if self._has_windows else None
        slots = buffers["window_slots"][:tokens] if self._has_windows else None
        return attention.Step(
            keys=attention.Keys(
                buffers["lengths"][:requests], buffers["table"][:requests], window_table
            ),
            queries=queries,
            tokens=tokens,
            words=words,
            window_slots=slots,
            num_splits=self._num_splits,
        )

    def _queries_of(self, forward_batch: Any) -> int:
        """How many queries each request has; 0 where they have different numbers."""
        mode, spec = forward_batch.forward_mode, forward_batch.spec_info
        if mode.is_decode_or_idle():
            return 1
        if mode.is_target_verify():
            if getattr(spec, "ragged_verify_layout", None) is not None:
                _refuse(["verification of different numbers of drafts is not served"])
            return int(spec.num_tokens_per_req)
        # Requests that extend by as many tokens each, as in the graph of a draft model.
        if mode.is_draft_extend_v2() and forward_batch.extend_seq_lens is None:
            return int(getattr(spec, "num_tokens_per_req", 0) or self._drafts)
        return 0

    def _longest(self, forward_batch: Any, more: int) -> int:
        """A bound of the requests' keys."""
        on_host = forward_batch.seq_lens_cpu
        if on_host is None or on_host.numel() == 0:
            return self.max_context_len
        return min(max(int(on_host.max()) + more, 1), self.max_context_len)

    def _keys_of(self, forward_batch: Any, queries: int, width: int) -> attention.Keys:
        lengths = forward_batch.seq_lens
        if forward_batch.forward_mode.is_target_verify():
            lengths = lengths + queries
        offsets = forward_batch.encoder_lens  # before the tokens of the text
        if offsets is not None:
            offsets = offsets.to(torch.int64)
        where = (self.req_to_token, forward_batch.req_pool_indices, self.page_size, width, offsets)
        keys = attention.Keys(lengths.to(torch.int32), attention.pages_of(*where))
        if self._has_windows:
            to_windows = self.token_to_kv_pool.translate_loc_from_full_to_swa
            keys.window_table = attention.pages_of(*where, translate=to_windows)
        return keys

    def _encoder_of(self, forward_batch: Any) -> attention.Keys | None:
        lengths = forward_batch.encoder_lens
        if lengths is None:
            return None
        on_host = forward_batch.encoder_lens_cpu
        width = max(1, *on_host) if on_host else self.max_context_len
        pages = attention.pages_of(
            self.req_to_token, forward_batch.req_pool_indices, self.page_size, width
        )
        return attention.Keys(lengths.to(torch.int32), pages)

    def _window_slots_of(self, forward_batch: Any) -> Any:
        if not self._has_windows or forward_batch.out_cache_loc is None:
            return None
        return self.token_to_kv_pool.translate_loc_from_full_to_swa(forward_batch.out_cache_loc)

    # ------------------------------------------------------------------------- trees of drafts

    def _has_tree(self, forward_batch: Any) -> bool:
        spec = forward_batch.spec_info
        if not forward_batch.forward_mode.is_target_verify() or spec.custom_mask is None:
            return False
        return getattr(spec, "tree_topk", 1) != 1  # drafts in one line are causal

    def _words_of(self, forward_batch: Any, queries: int) -> torch.Tensor | None:
        if not self._has_tree(forward_batch):
            return None
        return attention.tree_words(self._drafts_of(forward_batch, queries))

    def _drafts_of(self, forward_batch: Any, queries: int) -> torch.Tensor:
        """Which drafts see which, of the mask that SGLang has made."""
        if queries > attention.LARGEST_TREE:
            _refuse([f"a tree has at most {attention.LARGEST_TREE} drafts, got {queries}"])
        mask, requests = forward_batch.spec_info.custom_mask, forward_batch.batch_size
        buffer = None if self._verify_mask is None else self._verify_mask.buffer
        is_own = buffer is not None and mask.data_ptr() == buffer.data_ptr()
        if is_own or mask.numel() == requests * queries**2:
            return mask[: requests * queries**2].view(requests, queries, queries)
        return attention.drafts_of_full_mask(mask, forward_batch.seq_lens, queries)

    def _keep_mask(self, forward_batch: Any, queries: int) -> None:
        """Copies a mask to where graphs read it, unless it is there."""
        if self._verify_mask is None:
            _refuse(["a tree of drafts needs speculative decoding to be on when the model starts"])
            return
        buffer, mask = self._verify_mask.buffer, forward_batch.spec_info.custom_mask
        if mask.data_ptr() != buffer.data_ptr():
            drafts = self._drafts_of(forward_batch, queries)
            buffer[: drafts.numel()].copy_(drafts.reshape(-1))

    # --------------------------------------------------------------------------------- a layer

    def forward_decode(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True,
        **options: Any,
    ) -> Any:  # fmt: skip
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, False, options)

    def forward_extend(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True,
        **options: Any,
    ) -> Any:  # fmt: skip
        return self._forward(q, k, v, layer, forward_batch, save_kv_cache, True, options)

    def _forward(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save: bool, extends: bool,
        options: dict[str, Any],
    ) -> Any:  # fmt: skip
        """Returns [tokens, heads * value head dim]."""
        step = self.forward_metadata
        assert isinstance(step, attention.Step)
        read = self._layer_of(layer, extends)
        sinks = options.pop("sinks", None)
        given = sorted(name for name, value in options.items() if value is not None)
        if given:
            _refuse([f"attention with {', '.join(given)} is not served"])
        out = getattr(forward_batch, "_attn_output", None)
        if out is None:
            out = q.new_empty(q.shape[0], read.heads * read.head_dim_v)
        rows = out.view(-1, read.heads, read.head_dim_v)
        query = q.view(-1, read.heads, read.head_dim)
        if read.is_encoder and k is not None:
            k = k.view(-1, read.heads_kv, read.head_dim)
            v = v.view(-1, read.heads_kv, read.head_dim_v)
            attention.attend(read, step, query, k, v, None, rows, sinks=sinks)
            if save:
                self._write(layer, forward_batch, step, k, v)
            return out
        if save and k is not None:
            self._write(layer, forward_batch, step, k, v)
        scales = self._scales_of(layer)
        caches = self._caches_of(layer)
        attention.attend(read, step, query, None, None, caches, rows, sinks=sinks, **scales)
        return out

    def _write(self, layer: Any, forward_batch: Any, step: attention.Step, k: Any, v: Any) -> None:
        place = KVWriteLoc.for_layer(forward_batch, layer, swa_loc=step.window_slots)
        scales = self._scales_of(layer)
        if scales:  # the pool divides by them in place
            k, v = k.clone(), v.clone()
        self.token_to_kv_pool.set_kv_buffer(layer, place, k, v, **scales)

    def _caches_of(self, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self.token_to_kv_pool.get_kv_buffer(layer.layer_id)
        pages = (-1, self.page_size)
        return keys.unflatten(0, pages), values.unflatten(0, pages)

    def _scales_of(self, layer: Any) -> dict[str, Any]:
        """The scales of a quantised cache, which pools of 16 bits do not apply."""
        if layer.k_scale is None or self.token_to_kv_pool.dtype not in attention.FLOAT8:
            return {}
        return {"k_scale": layer.k_scale, "v_scale": layer.v_scale}

    def _layer_of(self, layer: Any, extends: bool) -> attention.Layer:
        key = (layer, extends)
        if key not in self._layers:
            self._layers[key] = self._read_layer(layer, extends)
        return self._layers[key]

    def _read_layer(self, layer: Any, extends: bool) -> attention.Layer:
        _refuse(_layer_reasons(layer))
        is_both_ways = extends and layer.attn_type in _BIDIRECTIONAL
        causal = not (layer.is_cross_attention or is_both_ways)
        window = -1 if layer.sliding_window_size is None else layer.sliding_window_size
        pool = self.token_to_kv_pool
        return attention.Layer(
            heads=layer.tp_q_head_num,
            heads_kv=layer.tp_k_head_num,
            head_dim=layer.qk_head_dim,
            head_dim_v=layer.v_head_dim,
            causal=causal,
            is_encoder=layer.attn_type == AttentionType.ENCODER_ONLY,
            is_cross=layer.is_cross_attention,
            has_window_pool=self._has_windows and pool.layers_mapping[layer.layer_id][1],
            options={
                "scale": float(layer.scaling),
                "softcap": float(layer.logit_cap or 0),
                "window": (window, 0 if causal and window >= 0 else window),
            },
        )


def _refuse(reasons: list[str]) -> None:
    for reason in reasons:
        raise ValueError(
            f"kiln.integrations.sglang: {reason}; choose another --attention-backend for this model"
        )


def _reasons(backend: KilnAttnBackend, runner: Any, has_tree: bool) -> list[str]:
    """Why a model has no attention of Kiln's."""
    reasons = []
    if runner.use_mla_backend:
        reasons.append("latent attention (MLA) is not served")
    if get_parallel().attn_dcp_size > 1:
        reasons.append("decode context parallelism is not served")
    pool = backend.token_to_kv_pool
    pools = (pool.full_kv_pool, pool.swa_kv_pool) if backend._has_windows else (pool,)
    for each in pools:
        if each.dtype not in attention.CACHES:
            reasons.append(f"the KV cache must be 16-bit, fp8_e4m3 or fp8_e5m2, got {each.dtype}")
        layout = getattr(each, "kv_cache_layout", "nhd")
        if layout != "nhd":
            reasons.append(f"the KV cache's layout must be nhd, got {layout}")
    if runner.model_config.is_encoder_decoder and backend.page_size != 1:
        reasons.append(f"cross attention needs --page-size 1, got {backend.page_size}")
    if has_tree and runner.sliding_window_size is not None:
        reasons.append("trees of drafts are not served beside windows: set --speculative-eagle-topk"
                       " to 1")  # fmt: skip
    if has_tree and backend._drafts > attention.LARGEST_TREE:
        reasons.append(f"a tree has at most {attention.LARGEST_TREE} drafts, got {backend._drafts}")
    if runner.device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        if major < 8 or major == 11:
            reasons.append(f"GPUs of compute capability {major}.{minor} are not served")
    return reasons


def _layer_reasons(layer: Any) -> list[str]:
    reasons = []
    for name, dim in (("head dim", layer.qk_head_dim), ("value head dim", layer.v_head_dim)):
        if not is_head_dim(dim):
            reasons.append(f"the {name} must be a multiple of 8 up to 256, or 512, got {dim}")
    if not 0 <= (layer.logit_cap or 0) <= LARGEST_SOFTCAP:
        reasons.append(f"logit_cap must be at most 1000, got {layer.logit_cap}")
    if layer.logit_capping_method != "tanh" and layer.logit_cap:
        reasons.append(f"logits are capped by tanh alone, got {layer.logit_capping_method}")
    if layer.pos_encoding_mode != "NONE":
        reasons.append(f"pos_encoding_mode must be NONE, got {layer.pos_encoding_mode}")
    if layer.use_irope:
        reasons.append("chunked attention (iRoPE) is not served")
    if layer.xai_temperature_len > 0:
        reasons.append("temperatures by position (xai_temperature_len) are not served")
    return reasons
