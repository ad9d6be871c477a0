// What attention's kernels decide of each tile of keys for a mask: the picture that Python's
// `plot` of a variant draws. It is computed on the emulated device, by the functions that the
// kernels call.
#pragma once

#include <string>
#include <vector>

#include "kiln/attention.h"
#include "templates/attention/tile_map/params.h"

namespace kiln {

struct TileMapCall {
  AttentionOptions options;  // of which masks and the variant count
  int batch = 1, heads = 1, heads_kv = 1, len_q = 0, len_kv = 0, head_dim = 128;
  int block_q = 0, block_kv = 0;  // 0: those of the kernel that the call would run
  int b = 0, h = 0;               // the sequence and the head that are mapped
};

struct TileMap {
  std::string path, what;  // of that kernel
  int block_q = 0, block_kv = 0;
  std::vector<TileMapRow> rows;
  int key_tiles = 0;
  // For each row and each tile of keys: 0 skip, 1 full, 2 partial; and its visible pairs.
  std::vector<int> kinds, shown;
};

// The call of host tensors on the thread's emulated device. Throws std::invalid_argument and
// CompileError.
TileMap map_tiles(const TileMapCall& call);

}  // namespace kiln
