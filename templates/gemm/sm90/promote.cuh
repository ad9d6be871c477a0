// Computes the products of one output tile of 8-bit floats. The tensor cores keep about 14 bits of
// their sums, so the products are added up in fp32 after every K-tile, times their scales if those
// are of blocks.
#pragma once
#include "/kiln/gemm/sm90/block_scales.cuh"
#include "/kiln/gemm/sm90/main_loop.cuh"

namespace kiln {

// Multiplies a part of a math warpgroup's tile, 64 x kColumns outputs, over one K-tile and adds the
// products to the warpgroup's sums.
template <class Config>
struct Promotion {
  using Shape = Sm90Shape<Config>;
  using Products = typename Config::Products;
  using Position = typename Shape::StageRing::Position;
  using Registers = float[Products::kRegisters];
  using Sums = float[Shape::kTilesM][Shape::kRegisters];
  static constexpr int kColumns = Products::kRegisters * 2;
  static constexpr int kAcross = Config::kBlockN / kColumns;  // parts side by side
  static constexpr int kParts = Shape::kTilesM * kAcross;
  static_assert(kAcross * kColumns == Config::kBlockN,
                "gemm sm_90a: the columns of promoted products must divide kBlockN");

  __device__ __forceinline__ static void start(Registers& products, const Position& position,
                                               int group, int part) {
    const int m = group * Shape::kTilesM + part / kAcross;
    const u64 rows = operand_descriptor(Shape::rows(position.stage) + m * Shape::Rows::kBlockBytes,
                                        Shape::Rows::kBlockBytes);
    const u64 columns =
        operand_descriptor(Shape::columns(position.stage) + part % kAcross * kColumns * 128,
                           Shape::Columns::kBlockBytes);
    begin_products();
    Products::multiply(products, rows, columns, 0);
    commit_products();
  }
  using Scales = StageScales<Config>;
  __device__ __forceinline__ static void add(Sums& sums, const Registers& products, int part,
                                             const Scales& scales) {
    const int m = part / kAcross, column = part % kAcross * kColumns;
#pragma unroll
    for (int i = 0; i < Products::kRegisters; ++i) {
      scales.multiply_add(sums[m][column / 2 + i], products[i], m, column, i);
    }
  }
};

// Processes one part after another with a single set of registers for products: one group adds up
// while the others use the tensor cores. Whether the next stage is full is asked ahead of the last
// additions, which take as long as the answer: a group that asks when it needs the stage is 1.5 to
// 5 % slower.
template <class Config>
__device__ __forceinline__ void promote_in_turn(typename Promotion<Config>::Position& position,
                                                int k_tiles, int group,
                                                typename Promotion<Config>::Sums& sums) {
  using Step = Promotion<Config>;
  const auto ring = Sm90Shape<Config>::ring();
  typename Step::Registers products;
  typename Step::Scales scales(group);
  bool is_full = false;
#pragma unroll 1
  for (int i = 0; i < k_tiles; ++i) {
    if (!is_full) wait(ring.full(position.stage), position.parity);
#pragma unroll
    for (int part = 0; part < Step::kParts; ++part) {
      Step::start(products, position, group, part);
      if (part == 0) scales.read(position.stage);
      Step::Products::finish(products);
      if (part == Step::kParts - 1) release_stage<Config>(ring.empty(position.stage));
      if (part == Step::kParts - 1) {
        position.advance();
        is_full = test_wait(ring.full(position.stage), position.parity);
      }
      Step::add(sums, products, part, scales);
    }
  }
}

// Uses two sets of registers for products: a K-tile is added up while the next is multiplied.
template <class Config>
__device__ __forceinline__ void promote_behind(typename Promotion<Config>::Position& position,
                                               int k_tiles, int group,
                                               typename Promotion<Config>::Sums& sums) {
  using Step = Promotion<Config>;
  using Registers = typename Step::Registers;
  const auto ring = Sm90Shape<Config>::ring();
  Registers even, odd;
  typename Step::Scales scales(group);
  u32 previous = 0;        // the barrier that releases the previous stage
  u32 previous_stage = 0;  // its number, for its scales
  const auto start = [&](Registers& products) {
    wait(ring.full(position.stage), position.parity);
    Step::start(products, position, group, 0);
  };
  const auto next = [&] {
    previous = ring.empty(position.stage);
    previous_stage = position.stage;
    position.advance();
  };
  const auto turn = [&](Registers& ahead, Registers& behind) {
    start(ahead);
    scales.read(previous_stage);
    Step::Products::template finish<1>(behind);
    release_stage<Config>(previous);
    next();
    Step::add(sums, behind, 0, scales);
  };
  const auto end = [&](Registers& last) {
    scales.read(previous_stage);
    Step::Products::finish(last);
    release_stage<Config>(previous);
    Step::add(sums, last, 0, scales);
  };
  start(even);
  next();
#pragma unroll 1
  for (; k_tiles > 2; k_tiles -= 2) {
    turn(odd, even);
    turn(even, odd);
  }
  if (k_tiles == 2) {
    turn(odd, even);
    end(odd);
  } else {
    end(even);
  }
}

// Does the same as multiply_tile(), but adds up in fp32 after every K-tile.
template <class Config>
__device__ __forceinline__ void multiply_tile_promoted(
    typename Sm90Shape<Config>::StageRing::Position& position, int k_tiles, int group,
    float (&sums)[Sm90Shape<Config>::kTilesM][Sm90Shape<Config>::kRegisters]) {
#pragma unroll
  for (int m = 0; m < Sm90Shape<Config>::kTilesM; ++m) {
#pragma unroll
    for (int i = 0; i < Sm90Shape<Config>::kRegisters; ++i) sums[m][i] = 0.0f;
  }
  // Sums and two sets of products must leave registers for the rest, such as the scales of columns
  // of each 128 of K. CTAs that share a multiprocessor have half as many registers, but keep the
  // tensor cores busy for each other.
  constexpr bool kWideScales = StageScales<Config>::kColumns > 16 && Config::kGroups > 1;
  constexpr bool kTwoSets =
      Config::Products::kRegisters <= 64 && Config::kResidents == 1 && !kWideScales;
  if constexpr (Promotion<Config>::kParts == 1 && kTwoSets) {
    promote_behind<Config>(position, k_tiles, group, sums);
  } else {
    promote_in_turn<Config>(position, k_tiles, group, sums);
  }
}

}  // namespace kiln
