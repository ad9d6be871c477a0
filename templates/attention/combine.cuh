// The epilogue where several teams or several CTAs have each processed some of the keys. It joins
// their partial results, always in the same order, and writes the output and the LSE.
#pragma once
#include "/kiln/attention/cache_products.cuh"
#include "/kiln/attention/params.h"
#include "/kiln/attention/softmax.cuh"
#include "/kiln/attention/store.cuh"
#include "/kiln/base/copy.cuh"
#include "/kiln/base/quantize.cuh"
#include "/kiln/base/ticket.cuh"

namespace kiln {

// One row of a partial result, in shared memory or in the workspace: the unnormalised outputs, then
// the row's maximum and sum.
template <int kHeadDimV>
struct PartialRow {
  static constexpr int kColumns = attention_padded_dim(kHeadDimV);
  static constexpr int kFloats = kColumns + 4;  // see attention_partial_floats()

  float* at;

  __device__ __forceinline__ RowSum sum() const {
    const float2 pair = *reinterpret_cast<const float2*>(at + kColumns);
    return {pair.x, pair.y};
  }
  __device__ __forceinline__ void set_sum(RowSum sum) const {
    *reinterpret_cast<float2*>(at + kColumns) = {sum.max, sum.sum};
  }
  __device__ __forceinline__ float4 outputs(int column) const {
    return *reinterpret_cast<const float4*>(at + column);
  }
};

struct CombinedOutputs {
  RowSum sum;
  float4 outputs;  // four neighbouring columns

  // `largest`: of the maxima of all partial results that are going to be added.
  __device__ __forceinline__ void clear(float largest) {
    sum = {largest, 0.0f};
    outputs = {0.0f, 0.0f, 0.0f, 0.0f};
  }
  __device__ __forceinline__ void add(RowSum part, float4 of_part) {
    const float weight = exp2_approx(part.max - (sum.max == -KILN_INFINITY ? 0.0f : sum.max));
    sum.sum += weight * part.sum;
    outputs.x += weight * of_part.x;
    outputs.y += weight * of_part.y;
    outputs.z += weight * of_part.z;
    outputs.w += weight * of_part.w;
  }
  // Normalises the columns. `scale`: of the values.
  template <class Variant>
  __device__ __forceinline__ void finish(const Variant& variant, const Position& at, float scale,
                                         float (&values)[4]) const {
    const float factor = row_factor(sum, variant, at) * scale;
    values[0] = outputs.x * factor, values[1] = outputs.y * factor;
    values[2] = outputs.z * factor, values[3] = outputs.w * factor;
    if constexpr (Variant::kTransformsOutput) {
#pragma unroll
      for (float& value : values) value = variant.out(value, at);
    }
  }
  // Normalises and rounds them. The caller stores them, because ptxas spilled with head dim 256 and
  // a mask when this took the address too.
  template <class Element, class Variant>
  __device__ __forceinline__ void round(const Variant& variant, const Position& at, u32 (&words)[2],
                                        float scale = 1.0f) const {
    float values[4];
    finish(variant, at, scale, values);
    words[0] = pack2<Element>(values[0], values[1]);
    words[1] = pack2<Element>(values[2], values[3]);
  }
};

// Joins four columns of a row of `count` partial results; `row(i)` returns the i-th PartialRow, of
// which kTogether are read at once.
template <int kTogether = 8, class Row>
__device__ __forceinline__ CombinedOutputs combine_partials(int count, int column, Row row) {
  float largest = -KILN_INFINITY;
#pragma unroll kTogether
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, row(i).sum().max);
  CombinedOutputs all;
  all.clear(largest);
#pragma unroll kTogether
  for (int i = 0; i < count; ++i) all.add(row(i).sum(), row(i).outputs(column));
  return all;
}

// The same of partial results in the workspace, of which 16 are read at once.
template <class Row>
__device__ __forceinline__ CombinedOutputs combine_distant(int count, int column, Row row) {
  constexpr int kHalf = 8, kMost = 2 * kHalf;
  CombinedOutputs all;
  all.clear(-KILN_INFINITY);
#pragma unroll 1
  for (int first = 0; first < count; first += kMost) {
    RowSum sums[kMost];
    float4 outputs[kMost];
    float largest = all.sum.max;
    const auto read = [&](int begin) {
#pragma unroll
      for (int i = begin; i < begin + kHalf; ++i) {
        sums[i] = {-KILN_INFINITY, 0.0f};
        outputs[i] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (first + i < count) {
          sums[i] = row(first + i).sum();
          outputs[i] = row(first + i).outputs(column);
        }
      }
    };
    const auto for_each = [&](int begin, auto visit) {
#pragma unroll
      for (int i = begin; i < begin + kHalf; ++i) visit(sums[i], outputs[i]);
    };
    const auto raise = [&](RowSum sum, float4) { largest = fmaxf(largest, sum.max); };
    const auto add = [&](RowSum sum, float4 values) { all.add(sum, values); };
    const bool are_more = first + kHalf < count;
    read(0);
    if (are_more) {
      read(kHalf);
      for_each(kHalf, raise);
    }
    for_each(0, raise);
    const CombinedOutputs before = all;
    all.clear(largest);
    all.add(before.sum, before.outputs);
    for_each(0, add);
    if (are_more) for_each(kHalf, add);
  }
  return all;
}

// Calls `visit(row, column)` for every four columns of every row of the query tile that exists,
// spread over the CTA's threads.
template <class Config, class Addressing, class Visit>
__device__ __forceinline__ void for_each_quad(const Addressing& addressing, Visit visit) {
  constexpr int kQuads = Config::kHeadDimV / 4;
  for (int i = threadIdx.x; i < addressing.rows() * kQuads; i += Config::kWarps * 32) {
    visit(i / kQuads, i % kQuads * 4);
  }
}

// `join(row, column)` returns the CombinedOutputs of four columns.
template <class Config, class Variant, class Addressing, class Join>
__device__ __forceinline__ void store_quads(const Variant& variant, const Addressing& addressing,
                                            Join join) {
  float scale = 1.0f;
  if constexpr (KeysOf<Config>::kQuantized) scale = addressing.value_scale();
  // Calls `store(all, at, row, column)` for four columns of a row with what has been joined.
  const auto for_each = [&](auto store) {
    for_each_quad<Config>(addressing, [&](int row, int column) {
      const Position at = addressing.position(row, 0);
      const CombinedOutputs all = join(row, column);
      if (addressing.wants_lse() && column == 0) *addressing.lse(row) = lse_of(all.sum);
      if constexpr (Variant::kTakesMaxima) {
        if (column == 0) variant.take_maximum(all.sum, at);
      }
      store(all, at, row, column);
    });
  };
  using Outputs = OutputsOf<Config>;
  if constexpr (Outputs::kQuantized) {
    const Divisor divisor(addressing.out_scale());
    for_each([&](const CombinedOutputs& all, const Position& at, int row, int column) {
      float values[4];
      all.finish(variant, at, scale, values);
      u32 words[1];
      quantize<typename Outputs::Element, Config::kHardware>(values, divisor, words);
      store_words<Config::kAligned>(addressing.out_row(row) + column, words);
    });
  } else {
    for_each([&](const CombinedOutputs& all, const Position& at, int row, int column) {
      u32 words[2];
      all.template round<typename Config::Element>(variant, at, words, scale);
      store_words<Config::kAligned>(addressing.out_row(row) + column, words);
    });
  }
}

template <class Config, int kTogether = 8, class Variant, class Addressing, class Row>
__device__ __forceinline__ void store_combined(const Variant& variant, const Addressing& addressing,
                                               int count, Row row_of) {
  store_quads<Config>(variant, addressing, [&](int row, int column) {
    return combine_partials<kTogether>(count, column, [&](int i) { return row_of(i, row); });
  });
}

// Where the CTAs that share a query tile's keys meet: a counter, a partial result for each, and
// this one's place among them.
struct PartialPlace {
  u64* counter;
  float* partials;
  int index, count;
};

// Writes the rows of which `count` partial results are in the workspace; `of_split(i, row)` returns
// a PartialRow. Few of them come to shared memory first, where attention_shared_bytes() has room
// for as many rows as all teams have: all reads are under way at once.
template <class Config, class Variant, class Addressing, class Row>
__device__ __forceinline__ void join_partials(float* in_shared, int count, Row of_split,
                                              const Variant& variant,
                                              const Addressing& addressing) {
  using Partial = PartialRow<Config::kHeadDimV>;
  const int rows = addressing.rows();
  if (count * rows > Config::kTeams * Config::kBlockQ) {
    return store_combined<Config>(variant, addressing, count, of_split);
  }
  constexpr int kChunks = Partial::kFloats / 4;
  for (int i = threadIdx.x / 32; i < count; i += Config::kWarps) {
#pragma unroll 4
    for (int chunk = threadIdx.x % 32; chunk < rows * kChunks; chunk += 32) {
      copy_async_16(shared_address(in_shared + i * rows * Partial::kFloats + chunk * 4),
                    of_split(i, 0).at + chunk * 4, 16);
    }
  }
  commit_copies<true>();
  wait_copies<true, 0>();
  __syncthreads();
  // Shared memory answers soon, so that few at once will do; more take longer to compile.
  store_combined<Config, 4>(variant, addressing, count, [&](int i, int row) {
    return Partial{in_shared + (i * rows + row) * Partial::kFloats};
  });
}

// Called after softmax.finish(). Partners hold equal maxima and sums. `is_shared`: other CTAs have
// keys of the same rows; `shared_place()` then returns the PartialPlace.
template <class Config, class OutMap, class Softmax, class SharedPlace, class Variant,
          class Addressing, class Place>
__device__ __forceinline__ void combine_rows(u8* shared_memory, Fragment<OutMap>& out,
                                             const Softmax& softmax, bool is_shared, u64 nonce,
                                             SharedPlace shared_place, const Variant& variant,
                                             const Addressing& addressing, const Place& place) {
  using Row = PartialRow<Config::kHeadDimV>;
  float* const in_shared = reinterpret_cast<float*>(shared_memory);
  const auto of_team = [&](int i, int row) {
    return Row{in_shared + (i * Config::kBlockQ + row) * Row::kFloats};
  };
  // The counter is opened while this CTA is busy with its teams, so that nobody waits for it.
  u64 seen = 0;
  if (is_shared && threadIdx.x == 0) seen = Arrivals::look(shared_place().counter);
  __syncthreads();  // all warps have finished reading Q, K and V
#pragma unroll
  for (int r = 0; r < OutMap::kRows; ++r) {
    // Mostly a quarter of the rows exist, and all of them would take half a microsecond.
    if (place.row + OutMap::row(r) >= addressing.rows()) continue;
    const Row row = of_team(place.team, place.row + OutMap::row(r));
    if (OutMap::leads_row() && place.partner == 0) row.set_sum(softmax.row[r]);
    float* const columns = row.at + place.column();
    if constexpr (is_alternating<OutMap>) {
#pragma unroll
      for (int c = 0; c < OutMap::kCols; c += 4) {
        *reinterpret_cast<float4*>(columns + OutMap::col(c)) = {out.at(r, c), out.at(r, c + 2),
                                                                out.at(r, c + 1), out.at(r, c + 3)};
      }
    } else {
#pragma unroll
      for (int c = 0; c < OutMap::kCols; c += 2) {
        *reinterpret_cast<float2*>(columns + OutMap::col(c)) = {out.at(r, c), out.at(r, c + 1)};
      }
    }
  }
  __syncthreads();
  if (!is_shared) return store_combined<Config>(variant, addressing, Config::kTeams, of_team);

  const PartialPlace shared = shared_place();
  const Arrivals arrivals(shared.counter, nonce, shared.count);
  if (threadIdx.x == 0) arrivals.open(seen);
  const auto of_split = [&](int i, int row) {
    return Row{shared.partials + (i * Config::kBlockQ + row) * Row::kFloats};
  };
  for_each_quad<Config>(addressing, [&](int row, int column) {
    const CombinedOutputs all =
        combine_partials(Config::kTeams, column, [&](int i) { return of_team(i, row); });
    const Row to = of_split(shared.index, row);
    if (column == 0) to.set_sum(all.sum);
    *reinterpret_cast<float4*>(to.at + column) = all.outputs;
  });
  if (!arrivals.is_last()) return;
  if constexpr (Config::kBlockQ == 16 && Config::kHeadDimV <= 128) {
    return store_quads<Config>(variant, addressing, [&](int row, int column) {
      return combine_distant(shared.count, column, [&](int i) { return of_split(i, row); });
    });
  } else {
    // Others have no registers for it.
    join_partials<Config>(in_shared, shared.count, of_split, variant, addressing);
  }
}

}  // namespace kiln
