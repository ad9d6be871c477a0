"""vLLM's classes with Kiln's attention. vLLM imports this module by the path that register() gave
it, when a model asks for the backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import vllm.envs as envs
from vllm.config import get_current_vllm_config_or_none
from vllm.distributed.parallel_state import get_dcp_group, get_dcp_world_size_and_rank
from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8StaticTensorSym
from vllm.model_executor.warmup.jit_warmup import VllmJitKernel
from vllm.platforms import current_platform
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadataBuilder,
    MultipleOf,
)

from . import _vllm_attention as attention
from . import _vllm_kernels as kernels
from ._limits import is_head_dim

_HOPPER = (9, 0)
# The copy engine brings pages of this many rows and more as fast as contiguous keys.
_BEST_BLOCK = 32
# Rows of a page are copied in boxes of so many at least; Kiln reads smaller pages, but slowly.
_BLOCK = 8


class KilnKernels(VllmJitKernel["KilnKernels.CompileKey"]):
    """Kiln's kernels in vLLM's warm-up; a key is a spec of `kiln prewarm`, as JSON."""

    @dataclass(frozen=True)
    class CompileKey:
        spec: str

    def get_warmup_keys(self, *, specs: tuple[str, ...]) -> list[CompileKey]:
        return [self.CompileKey(spec) for spec in specs]

    def compile(self, compile_key: CompileKey) -> None:
        self.compile_many([compile_key])

    def compile_many(self, compile_keys: Iterable[CompileKey]) -> None:
        kernels.load_specs([key.spec for key in compile_keys])


_KERNELS = KilnKernels()


class KilnMetadataBuilder(attention.Builder, AttentionMetadataBuilder[attention.Metadata]):
    """Makes a step's metadata.

    A graph of any batch may be replayed with any other within the bounds that it was captured with
    (all of its tokens in one request, the longest context): all lengths, pages and flags are read
    by the kernels, the launches follow from the bounds, and build() only refers to vLLM's buffers.
    """

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS
    supports_update_block_table = True

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: Any
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.num_splits = 1 if envs.VLLM_BATCH_INVARIANT else 0
        world, rank = get_dcp_world_size_and_rank(getattr(kv_cache_spec, "dcp_sharded", False))
        interleave = vllm_config.parallel_config.cp_kv_cache_interleave_size
        requests = vllm_config.scheduler_config.max_num_seqs
        self.start_context_parallel(world, rank, interleave, requests, device)
        # A speculator's graph would replay with the local lengths of its capture.
        self.supports_draft_decode_metadata_update = self.dcp_world_size == 1
        if vllm_config.kernel_config.enable_jit_warmup:
            layers = vllm_config.compilation_config.static_forward_context
            impls = [layers[name].impl for name in layer_names if name in layers]
            specs = kernels.spec_texts(impls, vllm_config.model_config.dtype)
            _KERNELS.register_warmup(specs=specs)


class KilnImpl(attention.Impl, AttentionImpl[attention.Metadata]):
    """One layer's attention."""

    can_return_lse_for_decode = True
    lse_base_on_e = True
    supports_dcp = True
    # Positions of the whole request reach the kernel, whatever the interleave.
    supports_mtp_with_cp_non_trivial_interleave_size = True
    # 16-bit queries are exact beside 8-bit keys.
    supports_quant_query_input = False
    _uses_a2a = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = get_current_vllm_config_or_none()
        if self.dcp_world_size > 1 and config is not None:
            self.dcp_interleave = config.parallel_config.cp_kv_cache_interleave_size
            self._uses_a2a = config.parallel_config.dcp_comm_backend == "a2a"

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        """Whether forward() takes output_scale. Hopper's own kernels round no results to bytes, so
        that fusion would make its prefill slower."""
        if quant_key != kFp8StaticTensorSym or self.dcp_world_size > 1:
            return False
        return not current_platform.is_device_capability(_HOPPER)

    def gather(self, query: Any) -> Any:
        return get_dcp_group().all_gather(query.contiguous(), dim=1)

    def combine(self, part: Any, lse: Any) -> tuple[Any, Any]:
        from vllm.v1.attention.ops import dcp

        join = dcp.dcp_a2a_lse_reduce if self._uses_a2a else dcp.cp_lse_ag_out_rs
        return join(part, lse.contiguous(), get_dcp_group(), return_lse=True)


class KilnAttentionBackend(AttentionBackend):
    """Answers what vLLM asks when it chooses among backends."""

    supported_kv_cache_dtypes: ClassVar[list[Any]] = list(attention.CACHES)
    forward_includes_kv_cache_update = False
    supports_kv_cache_update_bypass = True

    @staticmethod
    def get_name() -> str:
        return "KILN"

    @staticmethod
    def get_impl_cls() -> type[KilnImpl]:
        return KilnImpl

    @staticmethod
    def get_builder_cls() -> type[KilnMetadataBuilder]:
        return KilnMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(_BLOCK)]

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        return max(super().get_preferred_block_size(default_block_size), _BEST_BLOCK)

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return is_head_dim(head_size)

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return capability.major in (8, 9, 10, 12)

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return attn_type in attention.KINDS

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True

    @classmethod
    def supports_per_head_quant_scales(cls) -> bool:
        return True

    @classmethod
    def supports_combination(
        cls,
        head_size: int,
        dtype: Any,
        kv_cache_dtype: Any,
        block_size: int | None,
        use_mla: bool,
        has_sink: bool,
        use_sparse: bool,
        use_mm_prefix: bool,
        device_capability: Any,
    ) -> str | None:
        return attention.cache_reason(dtype, kv_cache_dtype)


class KilnCustomBackend(KilnAttentionBackend):
    """The same under vLLM's own name for backends from outside, which a process that was spawned
    knows before it has loaded its plugins."""

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"
