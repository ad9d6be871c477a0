"""Attention variants that many models use, each made of a few lines of :class:`kiln.jit.Variant`.

    from kiln import jit, variants
    out = jit.flash_attention(q, k, v, variant=variants.prefix_lm(128))

Each function returns a bound variant; other values of its arguments never compile. Positions are
Kiln's: `q` is a query's place among the keys (the last query stands beside the last key), `kv` a
key's. docs/variants.md tells which of these masks skip whole tiles.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from ._variant_text import variant_of_text
from .jit import Variant

__all__ = [
    "additive_bias",
    "alibi",
    "block_sparse",
    "boolean_mask",
    "chunked",
    "dilated_window",
    "document_bounds",
    "documents",
    "global_window",
    "neighborhood_2d",
    "prefix_lm",
    "relative_bias",
    "sliding_window",
    "softcap",
    "t5_bias",
]

_PREFIX = Variant("prefix_lm", params={"prefix": "i32"}, mask="kv <= q || kv < prefix")
_PREFIXES = Variant("prefix_lm", tensors={"prefix": "i32[b]"}, mask="kv <= q || kv < prefix")
_SLIDING = Variant("sliding_window", params={"size": "i32"}, mask="kv <= q && q - kv < size")
_DILATED = Variant(
    "dilated_window",
    params={"reach": "i32", "dilation": "i32"},
    mask="kv <= q && q - kv < reach && (q - kv) % dilation == 0",
)
_CHUNKED = Variant("chunked", params={"size": "i32"}, mask="kv <= q && q / size == kv / size")
_GLOBAL = Variant(
    "global_window",
    params={"first": "i32", "reach": "i32"},
    mask="kv < first || q < first || abs(q - kv) <= reach",
)
_DOCUMENTS = Variant(
    "documents", tensors={"mine": "i32[b, q]", "its": "i32[b, kv]"}, mask="mine == its"
)
_NEIGHBORHOOD = Variant(
    "neighborhood_2d",
    params={"width": "i32", "reach": "i32"},
    mask="abs(min(max(q / width, reach), len_kv / width - 1 - reach) - kv / width) <= reach && "
    "abs(min(max(q % width, reach), width - 1 - reach) - kv % width) <= reach",
)
_ALIBI = Variant("alibi", tensors={"slope": "f32[h]"}, logits="logit - slope * abs(at.distance)")
# Beyond the reach, all keys have the same bias.
_RELATIVE_TEXT = """
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kTransformsLogits = true, kHasDistanceBias = true;
  kiln::VariantTable<float, 2> bias;  // [heads or 1, 2 * reach + 1]

  __device__ __forceinline__ int last() const { return bias.extents[1].value - 1; }
  __device__ __forceinline__ int far_distance(const kiln::Position&) const { return last() / 2; }
  // A load by a byte offset takes a register less than the table's own, and a product of 64 bits
  // takes longer.
  __device__ __forceinline__ float bias_at(const kiln::Position& at, int distance) const {
    const int head = min(at.h, bias.extents[0].value - 1);
    const float* const line = bias.data.value + head * bias.strides[0].value;
    const int stride = static_cast<int>(bias.strides[1].value) * 4;
    const unsigned offset = max(min(distance + last() / 2, last()), 0) * stride;
    const char* const bytes = reinterpret_cast<const char*>(line);
    return __ldg(reinterpret_cast<const float*>(bytes + offset));
  }
};
"""


_RELATIVE = variant_of_text("relative_bias", {}, {"bias": "f32[h, *]"}, _RELATIVE_TEXT)

# A product takes a fraction of the time of a quotient.
_SOFTCAP = Variant(
    "softcap", params={"cap": "f32", "inverse": "f32"}, logits="cap * tanh(logit * inverse)"
)
_ADDITIVE = {
    kind: Variant(
        "additive_bias", tensors={"bias": f"{kind}[b, h, row, kv]"}, logits="logit + bias"
    )
    for kind in ("f32", "f16", "bf16")
}
_BOOLEAN = Variant("boolean_mask", tensors={"visible": "bool[b, h, row, kv]"}, mask="visible")


def _positive(name: str, value: int, least: int = 1) -> int:
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")
    return value


def _check_rank(name: str, tensor: Any, rank: int, layout: str) -> None:
    if len(tensor.shape) != rank:
        raise ValueError(f"{name} must have {rank} dimensions, {layout}, got {list(tensor.shape)}")


def prefix_lm(prefix: Any) -> Any:
    """Causal, but every query also sees the first `prefix` keys of its sequence.

    prefix: an int, or an int32 tensor [batch] with a number for each sequence."""
    if isinstance(prefix, int):
        return _PREFIX(prefix=_positive("prefix", prefix, 0))
    if not hasattr(prefix, "shape"):
        raise TypeError(f"prefix must be an int or an int32 tensor [batch], got {prefix!r}")
    return _PREFIXES(prefix=prefix)


def sliding_window(size: int) -> Any:
    """Each query sees the `size` last keys up to its own; `window=(size - 1, 0)` is the same."""
    return _SLIDING(size=_positive("size", size))


def dilated_window(size: int, dilation: int) -> Any:
    """Each query sees `size` keys up to its own, `dilation` apart: its own, the one `dilation`
    before it, and so on."""
    reach = _positive("size", size) * _positive("dilation", dilation)
    return _DILATED(reach=reach, dilation=dilation)


def chunked(size: int) -> Any:
    """Causal within chunks of `size` positions, as Llama-4's local layers: a query sees no key of
    an earlier chunk."""
    return _CHUNKED(size=_positive("size", size))


def global_window(first: int, reach: int) -> Any:
    """A window of `reach` keys to both sides, and the `first` positions see all and are seen by
    all, as in Longformer and BigBird. Not causal: add `causal=True` for that."""
    return _GLOBAL(first=_positive("first", first, 0), reach=_positive("reach", reach, 0))


def documents(ids: Any, bounds: Any = None) -> Any:
    """A query sees the keys of its own document. Not causal: add `causal=True` for that.

    Tiles of keys of other documents are neither read nor computed.

    ids:    int32 [batch, len_kv], the number of each position's document. len_q <= len_kv; a query
            ahead of the first position is of its document
    bounds: document_bounds(ids), of the same elements. Calls over sequences need them. Without
            them, each call finds the bounds by a launch of its own; calls with fewer than 64
            queries read the numbers at every pair instead"""
    if bounds is None:
        return _DOCUMENTS(mine=ids, its=ids)
    wanted = [ids.shape[0], -(-ids.shape[1] // _DOCUMENT_BLOCK), 2]
    if list(bounds.shape) != wanted:
        raise ValueError(
            f"bounds must be document_bounds(ids), {wanted} here, got {list(bounds.shape)}"
        )
    return _BOUNDED_DOCUMENTS(ids=ids, bounds=bounds)


def document_bounds(ids: Any) -> Any:
    """The least and the greatest number of each 64 positions: int32 [batch, blocks, 2]. Make them
    again when `ids` changes: bounds of other numbers leave out keys that are to be seen.

    ids: a torch.Tensor, int32 [batch, len_kv]."""
    import torch

    if not isinstance(ids, torch.Tensor):
        raise TypeError(f"ids must be a torch.Tensor, got {type(ids).__name__}")
    _check_rank("ids", ids, 2, "[batch, len_kv]")
    blocks = -(-ids.shape[1] // _DOCUMENT_BLOCK)
    places = torch.arange(blocks * _DOCUMENT_BLOCK, device=ids.device).clamp(max=ids.shape[1] - 1)
    members = ids[:, places].view(-1, blocks, _DOCUMENT_BLOCK)
    return torch.stack(members.aminmax(dim=-1), -1)


_DOCUMENT_BLOCK = 64
_DOCUMENTS_TEXT = """
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kMasks = true, kTilesBySequence = true, kSearchesKeys = true;
  kiln::VariantTensor<int, 2> ids;    // [batch, position]
  kiln::VariantTable<int, 3> bounds;  // [batch, block, 2]: the least and the greatest number

  __device__ __forceinline__ bool keep(const kiln::Position& at) const {
    return ids.read(at.b, max(at.q, 0)) == ids.read(at.b, at.kv);
  }
  __device__ __forceinline__ kiln::Range numbers(int b, int first, int last) const {
    const int entry = min(b, bounds.extents[0].value - 1);  // one may stand for all
    const int* const line = bounds.data.value + entry * bounds.strides[0].value;
    const int stride = static_cast<int>(bounds.strides[1].value);
    const int largest = static_cast<int>(bounds.strides[2].value);
    const int last_block = max(last, 0) / @BLOCK@;
    kiln::Range all = {0x7fffffff, -0x7fffffff - 1};
#pragma unroll 1
    for (int block = max(first, 0) / @BLOCK@; block <= last_block; block += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // at the same time; the last block perhaps twice
        const int* const numbers = line + min(block + i, last_block) * stride;
        all.begin = min(all.begin, __ldg(numbers));
        all.end = max(all.end, __ldg(numbers + largest));
      }
    }
    return all;
  }
  __device__ __forceinline__ kiln::Tile tile(const kiln::TileRows& rows, int kv_first,
                                             int kv_last) const {
    const kiln::Range mine = numbers(rows.b, rows.q_first, rows.q_last);
    const kiln::Range its = numbers(rows.b, kv_first, kv_last);
    if (mine.end < its.begin || its.end < mine.begin) return kiln::Tile::skip;
    const bool is_one = min(mine.begin, its.begin) == max(mine.end, its.end);
    return is_one ? kiln::Tile::full : kiln::Tile::partial;
  }
};
"""

_BOUNDED_DOCUMENTS = variant_of_text(
    "documents",
    {},
    {"ids": "i32[b, kv]", "bounds": "i32[*, *, *]"},
    _DOCUMENTS_TEXT.replace("@BLOCK@", str(_DOCUMENT_BLOCK)),
)

# The planes of a tile whose rows may be of several KV heads are all. A place outside of the table
# stands for the nearest one inside.
_BLOCKS = """
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kMasks = true, kTilesBySequence = true;
  static constexpr int kBlock = @SIZE@;
  kiln::VariantTable<@TYPE@, 3> blocks;  // [KV heads or 1, query blocks, key blocks]

  __device__ __forceinline__ bool keep(const kiln::Position& at) const {
    return blocks.at(at.h_kv, at.q / kBlock, at.kv / kBlock) != 0;
  }
  __device__ __forceinline__ kiln::Tile tile(const kiln::TileRows& rows, int kv_first,
                                             int kv_last) const {
    int plane = max(rows.h_kv, 0);
    const int last_plane = rows.h_kv < 0 ? blocks.extents[0].value - 1 : plane;
    const int last_key = kv_last / kBlock;
    bool any = false, all = true;
#pragma unroll 1
    for (; plane <= last_plane; ++plane) {
#pragma unroll 1
      for (int i = max(rows.q_first, 0) / kBlock; i <= max(rows.q_last, 0) / kBlock; ++i) {
#pragma unroll 1
        for (int j = kv_first / kBlock; j <= last_key; j += 2) {
          const bool first = blocks.at(plane, i, j) != 0;  // both at the same time
          const bool second = blocks.at(plane, i, min(j + 1, last_key)) != 0;
          any = any || first || second;
          all = all && first && second;
          if (any && !all) return kiln::Tile::partial;
        }
      }
    }
    return any ? kiln::Tile::full : kiln::Tile::skip;
  }
};
"""


@functools.cache
def blocks_of(size: int, kind: str, element: str) -> Any:
    """The variant of block_sparse for a size of blocks and a type of the table's elements."""
    text = _BLOCKS.replace("@SIZE@", str(size)).replace("@TYPE@", element)
    return variant_of_text("block_sparse", {}, {"blocks": f"{kind}[*, *, *]"}, text)


def bound_blocks(blocks: Any, size: int, kind: str, element: str) -> Any:
    """The variant with its table; kiln.operators._variants replaces it for PyTorch's compiler."""
    return blocks_of(size, kind, element)(blocks=blocks)


def block_sparse(blocks: Any, size: int = 64) -> Any:
    """A query sees the keys of the blocks that a table lists; other tiles are neither read nor
    computed. Longformer, BigBird and others are tables (docs/variants.md). Each size is a kernel.

    blocks: bool or uint8 [KV heads or 1, query blocks, key blocks], not 0 where queries of a block
            (by their place among the keys) see keys of a block. It is read at each call
    size:   how many positions a block has, 16 or more; multiples of 64 waste no work
    """
    _positive("size", size, 16)
    _check_rank("blocks", blocks, 3, "[KV heads or 1, query blocks, key blocks]")
    is_bool = str(blocks.dtype).removeprefix("torch.") == "bool"
    kind, element = ("bool", "bool") if is_bool else ("u8", "kiln::u8")
    return bound_blocks(blocks, size, kind, element)


def neighborhood_2d(width: int, reach: int) -> Any:
    """The tokens are the pixels of images of `width` columns, row by row: a query sees a square of
    2 * reach + 1 pixels a side, around itself or, at a border, moved inside (NATTEN).

    The image must have at least 2 * reach + 1 rows and columns, and len_q must be len_kv."""
    side = 2 * _positive("reach", reach, 0) + 1
    return _NEIGHBORHOOD(width=_positive("width", width, side), reach=reach)


def alibi(slopes: Any) -> Any:
    """Subtracts slope * |q - kv| from each logit (Press et al., 2022).

    slopes: float32 [heads]. `alibi_slopes=` of jit.flash_attention does the same."""
    return _ALIBI(slope=slopes)


def relative_bias(bias: Any) -> Any:
    """Adds bias[h, kv - q + reach] to each logit; beyond `reach`, that of the last distance.

    bias: float32 [heads or 1, 2 * reach + 1]."""
    _check_rank("bias", bias, 2, "[heads or 1, 2 * reach + 1]")
    distances = bias.shape[1]
    if distances % 2 != 1:
        raise ValueError(
            f"bias must have an odd number of distances, 2 * reach + 1, got {distances}"
        )
    # The kernel's offset is an unsigned number of 32 bits. NumPy and CuPy count strides in bytes.
    is_torch = hasattr(bias, "stride")
    step = 4 * bias.stride(1) if is_torch else getattr(bias, "strides", (0, 4))[1]
    if not 0 <= distances * step < 1 << 32:
        raise ValueError(
            "bias must take less than 4 GiB in a head, and its stride must not be negative; make "
            "it contiguous first"
        )
    return _RELATIVE(bias=bias)


def t5_bias(weights: Any, *, bidirectional: bool = True, max_distance: int = 128) -> Any:
    """T5's relative position bias. T5 does not scale its logits: call with `scale=1.0`.

    weights: float32 [heads, buckets]: relative_attention_bias.weight, transposed. An encoder is
    bidirectional. The weights are copied by distance: make the variant again when they change."""
    _check_rank("weights", weights, 2, "[heads, buckets]")
    exact = weights.shape[1] // (4 if bidirectional else 2)
    if exact < 1:
        raise ValueError(
            f"weights must have {4 if bidirectional else 2} buckets or more, got {weights.shape[1]}"
        )
    if max_distance <= exact:
        raise ValueError(
            f"max_distance must be greater than {exact}, as each distance below has a bucket of "
            f"its own, got {max_distance}"
        )
    distances = range(-max_distance, max_distance + 1)
    buckets = [_t5_bucket(d, weights.shape[1], bidirectional, max_distance) for d in distances]
    return relative_bias(weights[:, buckets])


def _t5_bucket(distance: int, buckets: int, bidirectional: bool, max_distance: int) -> int:
    """The bucket of key - query (Raffel et al., 2020): a half of them for one distance each, the
    others for logarithmically growing ranges up to max_distance."""
    first, size = 0, max(-distance, 0)
    if bidirectional:
        buckets //= 2
        first, size = (buckets if distance > 0 else 0), abs(distance)
    exact = buckets // 2
    if size < exact:
        return first + size
    share = math.log(size / exact) / math.log(max_distance / exact)
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)


def softcap(cap: float) -> Any:
    """cap * tanh(logit / cap), as in Gemma-2. `softcap=` of jit.flash_attention does the same; this
    one composes with other variants in an order of your own."""
    if not hasattr(cap, "__float__") or not cap > 0:
        raise ValueError(f"cap must be a number greater than 0, got {cap!r}")
    return _SOFTCAP(cap=cap, inverse=1 / cap)


def additive_bias(bias: Any) -> Any:
    """Adds a bias to each logit.

    bias: float32, float16 or bfloat16 [batch, heads, len_q, len_kv]; a dimension of 1 and an
    expanded view broadcast."""
    kinds = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
    dtype = str(getattr(bias, "dtype", "")).removeprefix("torch.")
    if dtype not in kinds:
        got = dtype or repr(bias)
        raise TypeError(f"bias must be a float32, float16 or bfloat16 tensor, got {got}")
    return _ADDITIVE[kinds[dtype]](bias=bias)


def boolean_mask(visible: Any) -> Any:
    """A query sees the keys where `visible` is true.

    visible: bool [batch, heads, len_q, len_kv]; a dimension of 1 and an expanded view broadcast."""
    return _BOOLEAN(visible=visible)
