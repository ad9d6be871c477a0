// The epilogue of a CTA that has seen all keys: it normalises a warp's accumulators and writes
// output and LSE. Output passes through shared memory so that stores are full vectors and lines.
#pragma once
#include "/kiln/attention/load.cuh"
#include "/kiln/attention/softmax.cuh"

namespace kiln {

// Returns the factor of the accumulators of a row. `sum` gives the LSE; with what the variant adds
// at the end it is the denominator. A row without any key has sum 0 and accumulators 0.
template <class Variant>
__device__ __forceinline__ float row_factor(RowSum sum, const Variant& variant,
                                            const Position& at) {
  RowSum denominator = sum;
  float numerator = 1.0f;
  if constexpr (Variant::kFinishesRows) {
    variant.row_finish(denominator, at);
    // -inf - -inf is NaN, but the denominator is then 0, and so is the result.
    numerator = exp2_approx(sum.max - denominator.max);
  }
  return denominator.sum == 0.0f ? 0.0f : numerator * reciprocal_approx(denominator.sum);
}

__device__ __forceinline__ float lse_of(RowSum sum) {
  return (sum.max + log2_approx(sum.sum)) * kLn2;
}

// The elements of a kernel's outputs: Config::OutElement, or those of its queries.
template <class Config, class = void>
struct OutputsOf {
  using Element = typename Config::Element;
  static constexpr bool kQuantized = false;
};
template <class Config>
struct OutputsOf<Config, AlwaysVoid<typename Config::OutElement>> {
  using Element = typename Config::OutElement;
  static constexpr bool kQuantized = true;
  static_assert(sizeof(Element) == 1, "flash_attention: quantised outputs are bytes");
};

// Stores words of two or four elements each, to an address aligned to all of them or to one
// element.
template <bool kAligned, class Element, int kWords>
__device__ __forceinline__ void store_words(Element* destination, const u32 (&words)[kWords]) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4, "store_words: 4, 8 or 16 bytes");
  if constexpr (!kAligned && sizeof(Element) == 1) {
#pragma unroll
    for (int i = 0; i < 4 * kWords; ++i) {
      destination[i].bits = static_cast<u8>(words[i / 4] >> i % 4 * 8);
    }
  } else if constexpr (!kAligned) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      destination[2 * i].bits = static_cast<u16>(words[i]);
      destination[2 * i + 1].bits = static_cast<u16>(words[i] >> 16);
    }
  } else if constexpr (kWords == 4) {
    *reinterpret_cast<uint4*>(destination) = {words[0], words[1], words[2], words[3]};
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(destination) = {words[0], words[1]};
  } else {
    *reinterpret_cast<u32*>(destination) = words[0];
  }
}

// Called after softmax.finish(). Partners hold equal maxima and sums.
template <class Config, class OutMap, class Softmax, class Variant, class Addressing, class Place>
__device__ __forceinline__ void store_rows(u8* shared_memory, Fragment<OutMap>& out,
                                           const Softmax& softmax, const Variant& variant,
                                           const Addressing& addressing, const Place& place) {
  using Element = typename Config::Element;
  using Tile = TileShape<Config::kBlockQ, Config::kHeadDimV, 32, Config::kAligned>;
  __syncthreads();  // all warps have finished reading Q, K and V
#pragma unroll
  for (int r = 0; r < OutMap::kRows; ++r) {
    const int row = place.row + OutMap::row(r);
    const RowSum sum = softmax.row[r];
    const Position at = addressing.position(row, 0);
    if (addressing.wants_lse() && OutMap::leads_row() && place.partner == 0 &&
        row < addressing.rows()) {
      *addressing.lse(row) = lse_of(sum);
    }
    if constexpr (Variant::kTakesMaxima) {
      if (OutMap::leads_row() && place.partner == 0 && row < addressing.rows()) {
        variant.take_maximum(sum, at);
      }
    }
    const float factor = row_factor(sum, variant, at);
#pragma unroll
    for (int c = 0; c < OutMap::kCols; c += 2) {
      float pair[2] = {out.at(r, c) * factor, out.at(r, c + 1) * factor};
      if constexpr (Variant::kTransformsOutput) {
        pair[0] = variant.out(pair[0], at);
        pair[1] = variant.out(pair[1], at);
      }
      const u32 offset =
          Tile::Layout::offset(row, place.column() / 8 + c / 2) + threadIdx.x % 4 * 4;
      *reinterpret_cast<u32*>(shared_memory + offset) = pack2<Element>(pair[0], pair[1]);
    }
  }
  __syncwarp();
  // Each warp stores the rows that it wrote above: 32 chunks of 16 bytes at a time, row by row.
  constexpr int kColumns = OutMap::kColTiles * 8, kWarpRows = OutMap::kRowTiles * 16;
  constexpr int kChunks = (kColumns < Config::kHeadDimV ? kColumns : Config::kHeadDimV) / 8;
#pragma unroll 2
  for (int i = threadIdx.x % 32; i < kWarpRows * kChunks; i += 32) {
    const int row = place.row + i / kChunks, chunk = place.column() / 8 + i % kChunks;
    if (row >= addressing.rows()) break;
    const uint4 words =
        *reinterpret_cast<const uint4*>(shared_memory + Tile::Layout::offset(row, chunk));
    store_words<Config::kAligned>(addressing.out_row(row) + chunk * 8,
                                  {words.x, words.y, words.z, words.w});
  }
}

}  // namespace kiln
