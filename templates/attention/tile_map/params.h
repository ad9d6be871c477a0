// The run-time arguments of tile_map.cuh, shared by host and device.
#pragma once

namespace kiln {

// A row of a map of tiles: the queries of the tile that is walked, and those of them that decide
// for themselves which of its tiles of keys they compute.
struct TileMapRow {
  int walk_first, walk_last, first, last;
};
// `kinds` and `shown` have key_tiles numbers for each row: what becomes of a tile, a kiln::Tile,
// and how many of its pairs the mask shows.
struct TileMapParams {
  const TileMapRow* rows;
  int* kinds;
  int* shown;
  int b, h, h_kv, len_q, len_kv, key_tiles;
};
static_assert(sizeof(TileMapParams) % 8 == 0, "the variant's slots follow this struct");

}  // namespace kiln
