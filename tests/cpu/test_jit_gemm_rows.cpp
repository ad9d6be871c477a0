// The rows of the sm_90a GEMM: which of them a problem gets, and what names one.
#include <algorithm>

#include "jit/arch.h"
#include "jit/config.h"
#include "tests/support/catch.h"

using namespace kiln;

TEST_CASE("gemm on sm_90a: a cluster shares K where tiles are few; none of the portable rows") {
  GemmTraits traits;
  traits.input = DType::bf16;
  const int arch = arch_index({9, 0});
  const auto choice = [&](const GemmExtent& extent) {
    return choose_gemm(traits, arch, extent, 132, /*may_split=*/false);  // takes no workspace
  };
  const auto config = [&](const GemmExtent& extent) {
    return gemm_configs()[static_cast<std::size_t>(choice(extent).row)];
  };
  CHECK(choice({64, 64, 8192}).splits > 1);
  CHECK(choice({64, 64, 64}).splits == 1);  // one K-tile
  CHECK(choice({4096, 4096, 4096}).splits == 1);
  CHECK(config({16, 4096, 4096}).sm90.swapped);
  CHECK_FALSE(config({4096, 4096, 4096}).sm90.swapped);
  CHECK(config({4096, 4096, 4096}).block_n >= 128);
  CHECK(config({256, 28672, 8192}).block_n == 224);  // 256 tiles: two waves, nearly full
  for (std::int64_t m : {1, 16, 64, 512, 4096}) CHECK(config({m, 4096, 4096}).is_sm90());
  CHECK_FALSE(config({64, 64, 0}).is_sm90());
  // What the caller chose.
  const int row = find_gemm_row(traits, arch, GemmTile{64, 128, 64, 9, 0, 5});
  REQUIRE(row >= 0);
  CHECK(choose_gemm(traits, arch, {64, 4096, 4096}, 132, false, row, 5).splits == 5);
  CHECK(choose_gemm(traits, arch, {64, 4096, 128}, 132, false, row, 5).splits == 2);
  CHECK(find_gemm_row(traits, arch, GemmTile{64, 128, 64, 9, 0, 9}) == -1);
}

TEST_CASE("rows are told apart by what a config names") {
  for (std::size_t i = 0; i < gemm_configs().size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const GemmConfig &a = gemm_configs()[i], &b = gemm_configs()[j];
      const bool alike = a.element_bytes == b.element_bytes && a.block_m == b.block_m &&
                         a.block_n == b.block_n && a.block_k == b.block_k && a.stages == b.stages &&
                         a.sm90.cluster == b.sm90.cluster && a.sm90.splits == b.sm90.splits;
      INFO(tile_name(a) << " and " << tile_name(b));
      CHECK_FALSE(alike);
    }
  }
}

TEST_CASE(
    "whatever is said to suit sm_90a has a row there, and the first choice is one that serves") {
  const int arch = arch_index({9, 0});
  int suited = 0;
  for (int bits = 0; bits < 4 * 4 * 3 * 3 * 3 * 2; ++bits) {
    GemmTraits traits;
    constexpr DType kInputs[] = {DType::bf16, DType::f32, DType::f8_e4m3, DType::f16};
    constexpr Gate kGates[] = {Gate::none, Gate::halves, Gate::interleaved};
    traits.input = kInputs[bits % 4];
    traits.major_a = bits / 4 % 2 ? Major::mn : Major::k;
    traits.major_b = bits / 8 % 2 ? Major::mn : Major::k;
    traits.stores = static_cast<Access>(bits / 16 % 3);
    traits.loads = static_cast<Access>(bits / 48 % 3);
    traits.gate = kGates[bits / 144 % 3];
    if (traits.gate != Gate::none) traits.activation = Activation::swiglu;
    traits.output = bits / 432 % 2 ? DType::f32 : DType::bf16;
    if (!why_not_sm90(traits, arch, 1).empty()) continue;
    ++suited;
    INFO("traits " << bits);
    for (std::int64_t m : {1, 64, 300, 4096}) {
      const Choice choice = choose_gemm(traits, arch, {m, 4096, 512}, 132, false);
      const auto rows = gemm_rows(traits, arch);
      CHECK(std::find(rows.begin(), rows.end(), choice.row) != rows.end());
      CHECK(gemm_configs()[static_cast<std::size_t>(choice.row)].is_sm90());
    }
  }
  CHECK(suited > 100);
}
