// The products of one output tile for inputs of 8-bit floats, whose sums the tensor cores keep with
// about 14 bits: after every K-tile they are added up in fp32.
#pragma once
#include "/kiln/gemm/sm90/main_loop.cuh"

namespace kiln {

// As multiply_tile(). Of the registers of a second set of accumulators there are only 64, so a group
// multiplies 64 x kColumns outputs at a time, and adds them up while other groups use the tensor
// cores.
template <class Config>
__device__ __forceinline__ void multiply_tile_promoted(
    typename Sm90Shape<Config>::StageRing::Position& position, int k_tiles, int group,
    float (&sums)[Sm90Shape<Config>::kTilesM][Sm90Shape<Config>::kRegisters]) {
  using Shape = Sm90Shape<Config>;
  using Products = typename Config::Products;
  constexpr int kColumns = Products::kRegisters * 2, kParts = Config::kBlockN / kColumns;
  static_assert(kParts * kColumns == Config::kBlockN,
                "gemm sm_90a: the columns of promoted products must divide kBlockN");
  const auto ring = Shape::ring();
  float products[Products::kRegisters];
#pragma unroll
  for (int m = 0; m < Shape::kTilesM; ++m) {
#pragma unroll
    for (int i = 0; i < Shape::kRegisters; ++i) sums[m][i] = 0.0f;
  }
#pragma unroll 1
  for (int i = 0; i < k_tiles; ++i) {
    wait(ring.full(position.stage), position.parity);
#pragma unroll
    for (int m = 0; m < Shape::kTilesM; ++m) {
      const u64 rows = operand_descriptor(
          Shape::rows(position.stage) + (group * Shape::kTilesM + m) * Shape::Rows::kBlockBytes,
          Shape::Rows::kBlockBytes);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const u64 columns = operand_descriptor(
            Shape::columns(position.stage) + part * kColumns * 128, Shape::Columns::kBlockBytes);
        begin_products();
        Products::multiply(products, rows, columns, 0);
        commit_products();
        Products::finish(products);
        const bool is_last = m == Shape::kTilesM - 1 && part == kParts - 1;
        if (is_last) release_stage<Config>(ring.empty(position.stage));
#pragma unroll
        for (int j = 0; j < Products::kRegisters; ++j) {
          sums[m][part * Products::kRegisters + j] += products[j];
        }
      }
    }
    position.advance();
  }
}

}  // namespace kiln
