// The epilogue where several CTAs have each computed some of a query tile's keys. Each math warp
// passes the partial results of its 16 rows through the workspace, and the last one to arrive joins
// them, always in the same order.
//
// Where many CTAs share a tile, some neighbours' results are joined first, by several warps at a
// time, and then what these have joined:
//
//   split       0   1   2   3    4   5   6   7    8   9   10  11   12
//   first       '---+---+---'    '---+---+---'    '---+---+----'    |
//   then            '----------------+----------------+-------------'
#pragma once
#include "/kiln/attention/combine.cuh"
#include "/kiln/attention/sm90/query_tile.cuh"

namespace kiln {

// A partial result of a warp's 16 rows, in the order of its registers, so that every lane reads
// what a lane of its number wrote: the unnormalised outputs, four of each 8 columns together, then
// the maxima and sums of the two rows that four lanes share.
template <class Map>
struct PartialRows {
  static_assert(Map::kRows == 2, "attention sm_90a: a lane has two rows");
  static constexpr int kBlocks = Map::kColTiles;
  static constexpr int kFloats = attention_partial_floats(16, kBlocks * 8);
  static_assert(kBlocks * 128 + 32 <= kFloats, "attention sm_90a: room of a partial result");

  float4* at;

  __device__ __forceinline__ explicit PartialRows(float* from)
      : at(reinterpret_cast<float4*>(from)) {}

  // Called by a whole warp.
  template <class Softmax>
  __device__ __forceinline__ void write(const Softmax& softmax, const Fragment<Map>& out) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
      const float (&block)[4] = out.block[0][c];
      at[c * 32 + lane] = {block[0], block[1], block[2], block[3]};
    }
    const RowSum first = softmax.row[0], second = softmax.row[1];
    if (Map::leads_row()) {
      at[kBlocks * 32 + lane / 4] = {first.max, first.sum, second.max, second.sum};
    }
  }
  __device__ __forceinline__ float4 block(int c) const { return at[c * 32 + threadIdx.x % 32]; }
  __device__ __forceinline__ float4 sums() const { return at[kBlocks * 32 + threadIdx.x % 32 / 4]; }
};

// Replaces `softmax` and `out` by what `count` partial results have together; `part(i)` returns the
// i-th PartialRows. kTogether of them, and kMost blocks of each, are read at once: as many as there
// are registers for, because the warp waits for memory.
template <int kTogether, int kMost, class Softmax, class Map, class Part>
__device__ __forceinline__ void join_parts(Softmax& softmax, Fragment<Map>& out, int count,
                                           Part part) {
  RowSum all[2] = {{-KILN_INFINITY, 0.0f}, {-KILN_INFINITY, 0.0f}};
  out.clear();
#pragma unroll 1
  for (int first = 0; first < count; first += kTogether) {
    float4 sums[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      sums[i] = {-KILN_INFINITY, 0.0f, -KILN_INFINITY, 0.0f};
      if (first + i < count) sums[i] = part(first + i).sums();
    }
    // The weights of what has been joined before, and of the parts.
    float before[2], weights[kTogether][2];
    const auto weigh = [&](int r, auto sum_of) {
      float largest = all[r].max;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) largest = fmaxf(largest, sum_of(i).max);
      const float from = largest == -KILN_INFINITY ? 0.0f : largest;
      before[r] = exp2_approx(all[r].max - from);
      all[r] = {largest, all[r].sum * before[r]};
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        weights[i][r] = exp2_approx(sum_of(i).max - from);
        all[r].sum += weights[i][r] * sum_of(i).sum;
      }
    };
    bool are_weighed = false;
#pragma unroll
    for (int begin = 0; begin < Map::kColTiles; begin += kMost) {
      float4 blocks[kTogether][kMost];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
#pragma unroll
        for (int c = 0; c < min(kMost, Map::kColTiles - begin); ++c) {
          blocks[i][c] = {0.0f, 0.0f, 0.0f, 0.0f};
          if (first + i < count) blocks[i][c] = part(first + i).block(begin + c);
        }
      }
      // Behind the reads, which it would wait for otherwise.
      if (!are_weighed) {
        weigh(0, [&](int i) { return RowSum{sums[i].x, sums[i].y}; });
        weigh(1, [&](int i) { return RowSum{sums[i].z, sums[i].w}; });
        are_weighed = true;
      }
#pragma unroll
      for (int c = 0; c < min(kMost, Map::kColTiles - begin); ++c) {
        float (&to)[4] = out.block[0][begin + c];
#pragma unroll
        for (int j = 0; j < 4; ++j) to[j] *= before[j / 2];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const float4& from = blocks[i][c];
          to[0] += weights[i][0] * from.x, to[1] += weights[i][0] * from.y;
          to[2] += weights[i][1] * from.z, to[3] += weights[i][1] * from.w;
        }
      }
    }
  }
  softmax.row[0] = all[0], softmax.row[1] = all[1];
}

// Called by each math warp after softmax.finish(). Returns true in the last one of all splits, with
// what all of them have in `softmax` and `out`.
template <class Config, class Tile, class Softmax, class Map>
__device__ __forceinline__ bool join_splits(const Tile& tile, Softmax& softmax, Fragment<Map>& out,
                                            int warp_row) {
  using Rows = PartialRows<Map>;
  constexpr int kBlockQ = 64 * Config::kGroups;
  constexpr bool kHasFew = Config::kHeadDimV > 128 || KeysOf<Config>::kQuantized;
  constexpr int kTogether = kHasFew ? 1 : 2;
  constexpr int kBlocks = Config::kHeadDimV > 128 ? 4 : kHasFew ? 8 : 16;
  // Unsigned: ptxas would keep the sign of a division's result through the main loop.
  const SplitPlaces places = tile.template split_places<kBlockQ>(static_cast<u32>(warp_row) / 16);
  const AttentionParams& p = call_of(tile.p);
  u8* const workspace = static_cast<u8*>(p.workspace);
  u64* const counters = reinterpret_cast<u64*>(workspace) + places.first;
  float* const partials =
      reinterpret_cast<float*>(workspace + attention_flag_bytes(places.all, 1)) +
      places.first * Rows::kFloats;
  const auto rows_at = [&](int i) { return Rows(partials + i * Rows::kFloats); };

  // The splits that meet: how many, the first one, and how far each is from the next.
  int count = tile.splits(), first = 0, stride = 1, own = tile.split(), parts = 0;
  u64* counter = counters;
  if (count > kMostJoinedAtOnce) {
    int together = 3;
#pragma unroll 1
    while (together * together < count) ++together;
    parts = static_cast<u32>(count + together - 1) / static_cast<u32>(together);
    first = static_cast<u32>(own) / static_cast<u32>(together) * together;
    count = min(together, count - first);
    stride = together;
    counter += first;
  }
#pragma unroll 1
  while (true) {
    u64 seen = 0;
    if (WarpThreads::index() == 0) seen = Arrivals::look(counter);
    rows_at(own).write(softmax, out);
    const Arrivals arrivals(counter, p.nonce, count);
    if (WarpThreads::index() == 0) arrivals.open(seen);
    if (!arrivals.template is_last<WarpThreads>()) return false;
    const int step = parts == 0 ? stride : 1;
    join_parts<kTogether, kBlocks>(softmax, out, count,
                                   [&](int i) { return rows_at(first + i * step); });
    if (parts == 0) return true;
    __syncwarp();  // all lanes have read the sums that are replaced
    own = first, first = 0, count = parts, parts = 0;
    counter = counters + 1;  // no part begins there
  }
}

}  // namespace kiln
