"""The template file of a variant that is a BlockMask."""

from __future__ import annotations

from .nodes import Node
from .text import expression

# The kernel reads these of a BlockMask, beside what its mask_mod reads.
BLOCK_PARAMS = {"mask_heads": "i32"}
BLOCK_TENSORS = {"blocks": "u8[*, *, *, *]", "bounds": "i32[*, *, *, *]"}

ELEMENT = "t{slot}.at({indices})"
CPP_TYPES = {
    "f32": "float", "f16": "kiln::f16", "bf16": "kiln::bf16", "i32": "int", "i64": "kiln::i64",
    "u8": "kiln::u8", "bool": "bool",
}  # fmt: skip

HOOKS = """
  // kv_range() costs reads of memory, and keep() hides what it leaves out.
  static constexpr bool kRangeFollowsKeep = true;

  // Which heads' blocks are those of a tile: of its own head, or of all heads together.
  __device__ __forceinline__ int plane(int head) const {
    return mask_heads == 1 ? 0 : head < 0 ? static_cast<int>(mask_heads) : head;
  }
  // Where a table has a query block's entries. Both tables have the same planes, and a batch of 1
  // stands for all.
  template <class T>
  __device__ __forceinline__ static const T* line(const kiln::VariantTable<T, 4>& table, int b,
                                                  int of, int query_block) {
    return table.data.value + min(b, table.extents[0].value - 1) * table.strides[0].value +
           of * table.strides[1].value + query_block * table.strides[2].value;
  }
  __device__ __forceinline__ kiln::Range query_blocks(const kiln::TileRows& rows) const {
    const int shift = rows.len_kv - rows.len_q;
    return {max(rows.q_first - shift, 0) / kBlockRows,
            min(rows.q_last - shift, rows.len_q - 1) / kBlockRows};
  }
  __device__ __forceinline__ kiln::Range kv_range(const kiln::TileRows& rows) const {
    const kiln::Range queries = query_blocks(rows);
    int begin = rows.len_kv, end = 0;
    for (int i = queries.begin; i <= queries.end; ++i) {
      const int* const keys = line(bounds, rows.b, plane(rows.h), i);
      begin = min(begin, __ldg(keys));
      end = max(end, __ldg(keys + 1));
    }
    return {min(begin, end), end};
  }
  __device__ __forceinline__ kiln::Tile tile(const kiln::TileRows& rows, int kv_first,
                                             int kv_last) const {
    const kiln::Range queries = query_blocks(rows);
    bool any = false, all = true;
    for (int i = queries.begin; i <= queries.end; ++i) {
      const kiln::u8* const states = line(blocks, rows.b, plane(rows.h), i);
      for (int j = kv_first / kBlockKeys; j <= kv_last / kBlockKeys; ++j) {
        const int state = __ldg(states + j);
        any = any || state != 0;
        all = all && state == 2;
      }
    }
    return !any ? kiln::Tile::skip : all ? kiln::Tile::full : kiln::Tile::partial;
  }
"""

# The first of two keys is even, so that both are of the same block.
TWO_KEYS = """
  static constexpr bool kTakesTwo = true;
  __device__ __forceinline__ kiln::Two<bool> keep_two(const kiln::Position& at) const {{
    const int state = {state};
    kiln::Position next = at;
    ++next.kv;
    return {{shows(at, state), shows(next, state)}};
  }}
"""


def template_text(
    mask: Node | None, params: dict[str, str], tensors: dict[str, str], block_size: tuple[int, int]
) -> str:
    """The struct of a variant: the mask_mod's expression, and what a BlockMask's lists say."""
    members = [f"  kiln::Slot<{CPP_TYPES[kind]}> {name};" for name, kind in params.items()]
    for name, declaration in tensors.items():
        kind, _, dimensions = declaration.partition("[")
        rank = dimensions.count("*")
        members.append(f"  kiln::VariantTable<{CPP_TYPES[kind]}, {rank}> {name};")
    opening = "".join(
        f"    [[maybe_unused]] const int {name} = at.{name};\n" for name in ("b", "h", "row", "kv")
    )
    shown = "true" if mask is None else expression(mask, ELEMENT)
    state = "__ldg(line(blocks, at.b, plane(at.h), at.row / kBlockRows) + at.kv / kBlockKeys)"
    # Without captured tensors nothing is read at a key but `blocks`, which has room behind the end.
    indexes = any(name not in BLOCK_TENSORS for name in tensors)
    lines = [
        "struct UserVariant : kiln::VariantDefaults {",
        *members,
        f"  static constexpr int kBlockRows = {block_size[0]}, kBlockKeys = {block_size[1]};",
        "  static constexpr bool kMasks = true, kTilesBySequence = true, kFillsTiles = true;",
        f"  static constexpr bool kIndexesByKey = {'true' if indexes else 'false'};",
        HOOKS,
        "  __device__ __forceinline__ bool shows(const kiln::Position& at, int state) const {",
        f"{opening}    return (state == 2) | ((state == 1) & {shown});\n  }}",
        "  __device__ __forceinline__ bool keep(const kiln::Position& at) const {",
        f"    return shows(at, {state});\n  }}",
        "  __device__ __forceinline__ bool keep_in_block(const kiln::Position& at) const {",
        f"{opening}    return {shown};\n  }}",
    ]
    if block_size[1] % 2 == 0:
        lines.append(TWO_KEYS.format(state=state))
    return "\n".join([*lines, "};\n"])
