"""The template file of a variant that is a BlockMask."""

from __future__ import annotations

# The kernel reads these of a BlockMask, beside what its mask_mod reads.
BLOCK_PARAMS = {"mask_heads": "i32"}
BLOCK_TENSORS = {"blocks": "u8[*, *, *, *]", "bounds": "i32[*, *, *, *]"}

# UserMask is the mask_mod, as an expression. A tile within a partial block is what that says of it.
TEXT = """
struct UserVariant : UserMask {
  static constexpr int kBlockRows = @ROWS@, kBlockKeys = @KEYS@;
  static constexpr bool kMasks = true, kTilesBySequence = true, kFillsTiles = true;
  static constexpr bool kIndexesByKey = @INDEXES@;
  static constexpr bool kShowsRuns = UserMask::kShowsRuns || UserMask::kMasksByRange;
  static constexpr bool kMasksByRange = false, kShowsFirstKeys = false, kSearchesKeys = false;
  // kv_range() costs reads of memory, and keep() hides what it leaves out.
  static constexpr bool kRangeFollowsKeep = true;

  // Which heads' blocks are those of a tile: of its own head, or of all heads together.
  __device__ __forceinline__ int plane(int head) const {
    const int heads = arguments.mask_heads;
    return heads == 1 ? 0 : head < 0 ? heads : head;
  }
  // Where a table has a query block's entries. Both tables have the same planes, and a batch of 1
  // stands for all.
  template <class Table>
  __device__ __forceinline__ static auto* line(const Table& table, int b, int of,
                                               int query_block) {
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
      const int* const keys = line(arguments.bounds, rows.b, plane(rows.h), i);
      begin = min(begin, __ldg(keys));
      end = max(end, __ldg(keys + 1));
    }
    return {min(begin, end), end};
  }
  __device__ __forceinline__ bool is_in_block(const kiln::TileRows& rows, int kv_first,
                                              int kv_last) const {
    const kiln::Range queries = query_blocks(rows);
    return queries.begin == queries.end && kv_first / kBlockKeys == kv_last / kBlockKeys;
  }
  __device__ __forceinline__ kiln::Tile tile(const kiln::TileRows& rows, int kv_first,
                                             int kv_last) const {
    const kiln::Range queries = query_blocks(rows);
    bool any = false, all = true, asks = true;
    for (int i = queries.begin; i <= queries.end; ++i) {
      const kiln::u8* const states = line(arguments.blocks, rows.b, plane(rows.h), i);
      for (int j = kv_first / kBlockKeys; j <= kv_last / kBlockKeys; ++j) {
        const int state = __ldg(states + j);
        any = any || state != 0;
        all = all && state == 2;
        asks = asks && state == 1;
      }
    }
    if (!any) return kiln::Tile::skip;
    if (all) return kiln::Tile::full;
    // mask_mod decides nothing in a block that is not partial for all heads of the tile.
    if (!asks || !is_in_block(rows, kv_first, kv_last)) return kiln::Tile::partial;
    return UserMask::tile(rows, kv_first, kv_last);
  }
  __device__ __forceinline__ bool asks_keep(const kiln::TileRows& rows, int kv_first,
                                            int kv_last) const {
    if (rows.h < 0 || !is_in_block(rows, kv_first, kv_last)) return true;
    return !UserMask::kMasksByRange && UserMask::asks_keep(rows, kv_first, kv_last);
  }

  __device__ __forceinline__ int state(const kiln::Position& at) const {
    const kiln::u8* const states = line(arguments.blocks, at.b, plane(at.h), at.row / kBlockRows);
    return __ldg(states + at.kv / kBlockKeys);
  }
  __device__ __forceinline__ bool shows(const kiln::Position& at, int state) const {
    return (state == 2) | ((state == 1) & UserMask::keep(at));
  }
  __device__ __forceinline__ bool keep(const kiln::Position& at) const {
    return shows(at, state(at));
  }
  // A full block may be cut by the end of the keys.
  __device__ __forceinline__ kiln::Range visible(const kiln::Position& at) const {
    return state(at) == 2 ? kiln::Range{0, at.len_kv} : UserMask::visible(at);
  }
  // Tiles of a single head alone ask this, whose partial blocks are what mask_mod says of them.
  __device__ __forceinline__ bool keep_in_block(const kiln::Position& at) const {
    return UserMask::keep(at);
  }
@TWO_KEYS@};
"""

# The first of two keys is even, so that both are of the same block.
TWO_KEYS = """
  static constexpr bool kTakesTwo = true;
  __device__ __forceinline__ kiln::Two<bool> keep_two(const kiln::Position& at) const {
    const int both = state(at);
    kiln::Position next = at;
    ++next.kv;
    return {shows(at, both), shows(next, both)};
  }
"""


def template_text(tensors: dict[str, str], block_size: tuple[int, int]) -> str:
    """The struct of a variant, whose mask is the mask_mod: what a BlockMask's lists say."""
    # Without captured tensors nothing is read at a key but `blocks`, which has room behind the end.
    indexes = any(name not in BLOCK_TENSORS for name in tensors)
    values = {
        "@ROWS@": str(block_size[0]),
        "@KEYS@": str(block_size[1]),
        "@INDEXES@": "true" if indexes else "false",
        "@TWO_KEYS@": TWO_KEYS if block_size[1] % 2 == 0 else "",
    }
    text = TEXT
    for name, value in values.items():
        text = text.replace(name, value)
    return text
