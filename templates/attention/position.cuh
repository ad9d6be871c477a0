// The hooks of a variant are asked about these: logits, rows of queries, and tiles.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// The position of a logit, inside the sequence. For padding, whose result is discarded, a hook sees
// the last row instead, and with kIndexesByKey the last key, so that it may index tensors without
// checks. Hooks for a whole row get kv = 0.
struct Position {
  int b, h, h_kv;  // batch entry, query head, KV head
  int row;         // query index, 0 .. len_q - 1
  int q;           // row + len_kv - len_q: the query's position among the keys; negative for
                   // early rows if len_q > len_kv
  int kv;          // key index, 0 .. len_kv - 1
  int len_q, len_kv;
  float distance;   // q - kv, exact up to 2^24. An addition for each logit, where a conversion of
                    // the integers takes as long as an exponent. Padding may have another one
  int first_q = 0;  // packed queries: the sequence's first one
  // distance = row_distance - column; the column is a constant where neighbouring logits are at
  // neighbouring keys.
  float row_distance, column;
};

// Values for a key and for the next one.
template <class T>
struct Two {
  T first, second;
};

enum class Tile { skip, full, partial };

struct Range {
  int begin, end;  // contains() requires begin <= end

  __device__ __forceinline__ bool contains(int kv) const {
    return static_cast<u32>(kv - begin) < static_cast<u32>(end - begin);
  }
};

__device__ __forceinline__ Range intersection(Range a, Range b) {
  return {max(a.begin, b.begin), min(a.end, b.end)};
}

// The queries of one tile as positions q.
struct TileRows {
  int b;
  int q_first, q_last;
  int len_q, len_kv;
  // The query head and the KV head of all rows; -1 where they may be of several.
  int h = -1, h_kv = -1;
};

}  // namespace kiln
