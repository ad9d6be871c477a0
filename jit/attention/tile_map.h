// A kernel that maps what an attention kernel decides of each tile, for the emulated device.
#pragma once

#include <string>
#include <vector>

#include "jit/attention/problem.h"
#include "templates/attention/tile_map/params.h"

namespace kiln {

// The tile of the first kernel of a resolved problem.
struct MappedTile {
  int block_q = 0, block_kv = 0;
  int group = 0;        // so many rows of it decide for themselves which tiles they skip
  bool packed = false;  // its rows are of all heads that share a KV head, heads innermost
};
MappedTile mapped_tile(const Specialization& spec);

// The source of templates/attention/tile_map/tile_map.cuh with the variant of that kernel.
std::string render_tile_map(const Specialization& spec, const MappedTile& tile,
                            const UserTexts& texts);

// The rows of the map, from the first query to the last.
std::vector<TileMapRow> map_rows(const MappedTile& tile, const AttentionProblem& problem);

// The argument block: the parameters, then what follows them in the problem's own block.
CallArguments map_arguments(const TileMapParams& params, const AttentionProblem& problem);

}  // namespace kiln
