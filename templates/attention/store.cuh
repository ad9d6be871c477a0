// The epilogue: normalises a warp's accumulators and writes output and LSE.
#pragma once
#include "/kiln/attention/softmax.cuh"

namespace kiln {

template <bool kAligned, class Element>
__device__ __forceinline__ void store_pair(Element* destination, float first, float second) {
  if constexpr (kAligned) {
    *reinterpret_cast<u32*>(destination) = pack2<Element>(first, second);
  } else {
    destination[0] = from_float<Element>(first);
    destination[1] = from_float<Element>(second);
  }
}

// What the accumulators of a row are multiplied with. `sum` gives the LSE, with what the variant
// adds at the end it is the denominator. A row without any key has sum 0 and accumulators 0.
template <class Variant>
__device__ __forceinline__ float row_factor(RowSum sum, const Variant& variant,
                                            const Position& at) {
  RowSum denominator = sum;
  float numerator = 1.0f;
  if constexpr (Variant::kFinishesRows) {
    variant.row_finish(denominator, at);
    // -inf - -inf is no number, but then the denominator is 0.
    numerator = exp2_approx(sum.max - denominator.max);
  }
  return denominator.sum == 0.0f ? 0.0f : numerator * reciprocal_approx(denominator.sum);
}

// `softmax` after finish(); the warp's rows start at the query tile's row `tile_row`.
template <class Config, class Map, class OutMap, class Variant, class Addressing>
__device__ __forceinline__ void store_rows(Fragment<OutMap>& out, const OnlineSoftmax<Map>& softmax,
                                           const Variant& variant, const Addressing& addressing,
                                           int tile_row) {
#pragma unroll
  for (int r = 0; r < OutMap::kRows; ++r) {
    const int row = tile_row + OutMap::row(r);
    if (row >= addressing.rows()) continue;
    const RowSum sum = softmax.row[r];
    const Position at = addressing.position(row, 0);
    if (addressing.wants_lse() && OutMap::leads_row()) {
      *addressing.lse(row) = (sum.max + log2_approx(sum.sum)) * kLn2;
    }
    const float factor = row_factor(sum, variant, at);
    typename Config::Element* destination = addressing.out_row(row);
    // Whole 16 x 8 blocks are padding or none of their columns is.
#pragma unroll
    for (int c = 0; c < Config::kHeadDimV / 4; c += 2) {
      float pair[2] = {out.at(r, c) * factor, out.at(r, c + 1) * factor};
      if constexpr (Variant::kTransformsOutput) {
        pair[0] = variant.out(pair[0], at);
        pair[1] = variant.out(pair[1], at);
      }
      store_pair<Config::kAligned>(destination + OutMap::col(c), pair[0], pair[1]);
    }
  }
}

}  // namespace kiln
