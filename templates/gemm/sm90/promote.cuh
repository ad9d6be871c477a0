// Computes the products of one output tile of 8-bit floats. The tensor cores keep about 14 bits of
// their sums, so the products are added up in fp32 after every K-tile, times their scales if those
// are of blocks.
#pragma once
#include "/kiln/gemm/sm90/block_scales.cuh"
#include "/kiln/gemm/sm90/main_loop.cuh"
#include "/kiln/gemm/sm90/turns.cuh"

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
// while the others use the tensor cores. With kTurns, two groups start their products in turns.
template <class Config, bool kTurns = false>
class PartsInTurn {
  using Step = Promotion<Config>;
  using Position = typename Step::Position;

 public:
  __device__ __forceinline__ explicit PartsInTurn(int group) : group_(group), scales_(group) {
    if (kTurns && group == 1) give_turn(0);
  }

  // Starts a part of the K-tile at `position`, whose stage must be full.
  __device__ __forceinline__ void start(const Position& position, int part = 0) {
    if constexpr (kTurns) wait_for_turn(group_);
    Step::start(products_, position, group_, part);
    if constexpr (kTurns) give_turn(group_ ^ 1);
  }
  __device__ __forceinline__ void finish() { Step::Products::finish(products_); }

  // Without turns: adds a tile's products to the sums.
  __device__ __forceinline__ void add_tile(Position& position, int k_tiles,
                                           typename Step::Sums& sums) {
    static_assert(!kTurns, "gemm sm_90a: with turns, a tile's first products are under way");
    bool is_full = false;
#pragma unroll 1
    for (int i = 0; i < k_tiles; ++i) {
      if (!is_full) wait(Sm90Shape<Config>::ring().full(position.stage), position.parity);
      is_full = add_k_tile(position, sums);
    }
  }
  // With turns: does the same, with the tile's first part under way. The parts follow each other so
  // across K-tiles, too: it is the loop to which turns bring something.
  __device__ __forceinline__ void add_started_tile(Position& position, int k_tiles,
                                                   typename Step::Sums& sums) {
    static_assert(kTurns, "gemm sm_90a: only with turns are a tile's first products under way");
#pragma unroll 1
    for (int left = k_tiles;;) {
      const bool is_full = add_k_tile(position, sums);
      if (--left == 0) break;
      if (!is_full) wait(Sm90Shape<Config>::ring().full(position.stage), position.parity);
      start(position);
    }
  }

 private:
  // Returns whether the next stage is full. That is asked ahead of the last additions, which take
  // as long as the answer: to ask when the stage is needed is 1.5 to 5 % slower.
  __device__ __forceinline__ bool add_k_tile(Position& position, typename Step::Sums& sums) {
    const auto ring = Sm90Shape<Config>::ring();
    const Position here = position;
    position.advance();
    bool is_full = false;
#pragma unroll
    for (int part = 0; part < Step::kParts; ++part) {
      if (part > 0 || !kTurns) start(here, part);  // with turns the first is under way
      if (part == 0) scales_.read(here.stage);
      finish();
      if (part == Step::kParts - 1) release_stage<Config>(ring.empty(here.stage));
      if (part == Step::kParts - 1) {
        is_full = test_wait(ring.full(position.stage), position.parity);
      }
      Step::add(sums, products_, part, scales_);
    }
    return is_full;
  }

  int group_;
  typename Step::Registers products_;
  typename Step::Scales scales_;
};

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

// Whether products have a single set of registers. Sums and two sets of products must leave
// registers for the rest, such as the scales of columns of each 128 of K. CTAs that share a
// multiprocessor have half as many registers, but keep the tensor cores busy for each other.
template <class Config>
constexpr bool has_parts_in_turn() {
  constexpr bool kWideScales = StageScales<Config>::kColumns > 16 && Config::kGroups > 1;
  return Promotion<Config>::kParts > 1 || Config::Products::kRegisters > 64 ||
         Config::kResidents > 1 || kWideScales;
}

// Does the same as multiply_tile(), but adds up in fp32 after every K-tile.
template <class Config>
__device__ __forceinline__ void multiply_tile_promoted(
    typename Sm90Shape<Config>::StageRing::Position& position, int k_tiles, int group,
    float (&sums)[Sm90Shape<Config>::kTilesM][Sm90Shape<Config>::kRegisters]) {
  clear<Config>(sums);
  if constexpr (has_parts_in_turn<Config>()) {
    PartsInTurn<Config>(group).add_tile(position, k_tiles, sums);
  } else {
    promote_behind<Config>(position, k_tiles, group, sums);
  }
}

}  // namespace kiln
