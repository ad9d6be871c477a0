// The product of a tile's weights with its values, O += P V, of one warpgroup.
//
// Beside a warpgroup that widens keys, a thread has 128 registers at the launch, and ptxas takes no
// instruction that needs more, which a product of 256 columns does. There, the first 128 columns
// and the others have a product each.
#pragma once
#include "/kiln/attention/sm90/shape.cuh"

namespace kiln {

// The accumulators as one array, as wgmma takes them.
template <class Map>
__device__ __forceinline__ float (&registers_of(Fragment<Map>& fragment)) [Map::kColTiles * 4] {
  static_assert(Map::kRowTiles == 1, "a warp of a wgmma holds 16 rows");
  return reinterpret_cast<float (&)[Map::kColTiles * 4]>(fragment.block);
}

template <class Config>
class AttentionValueProducts {
  using Shape = AttentionSm90Shape<Config>;
  using Products = typename Config::Outputs;
  using Out = Fragment<typename Shape::OutMap>;
  static constexpr int kRegisters = Shape::OutMap::kColTiles * 4;
  static constexpr int kFirstRegisters = Products::kRegisters;
  static constexpr int kFirstColumns = 2 * kFirstRegisters;
  static constexpr bool kHasMore = kFirstColumns < Config::kHeadDimV;
  static_assert(!kHasMore || (kFirstColumns % 64 == 0 && !Shape::kMultipliesBytes),
                "attention sm_90a: two products share V between two slabs of 64 columns");

 public:
  // Starts to add; `v` is the address of the values' stage.
  __device__ __forceinline__ static void multiply(Out& out,
                                                  const u32 (&weights)[Shape::kWeightRegisters],
                                                  u32 v) {
    Products::multiply(first(out), weights, operand_descriptor_low(v, Shape::kVSlabBytes), 1);
    if constexpr (kHasMore) {
      const u32 more_v = v + kFirstColumns / 64 * Shape::kVSlabBytes;
      Config::MoreOutputs::multiply(more(out), weights,
                                    operand_descriptor_low(more_v, Shape::kVSlabBytes), 1);
    }
  }
  // Waits until no product is under way, after which `out` may be read.
  __device__ __forceinline__ static void finish(Out& out) {
    Products::template finish<0>(first(out));
    if constexpr (kHasMore) Config::MoreOutputs::template finish<0>(more(out));
  }

 private:
  __device__ __forceinline__ static auto& first(Out& out) {
    return reinterpret_cast<float (&)[kFirstRegisters]>(registers_of(out));
  }
  __device__ __forceinline__ static auto& more(Out& out) {
    return reinterpret_cast<float (&)[kRegisters - kFirstRegisters]>(
        registers_of(out)[kFirstRegisters]);
  }
};

}  // namespace kiln
