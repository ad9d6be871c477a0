// The rows of the sm_90a GEMM: which of them a problem gets, and what names one.
#include <algorithm>
#include <set>
#include <span>
#include <string>

#include "jit/gemm/config.h"
#include "jit/gemm/family.h"
#include "jit/op/arch.h"
#include "tests/support/catch.h"

using namespace kiln;

namespace {

// The choice on an H200, "128x96x64x6 split apart by 4". `may_split`: whether there is a workspace.
std::string tile_and_splits(const GemmTraits& traits, const GemmExtent& extent,
                            bool may_split = false) {
  const GemmChoice choice = choose_gemm(traits, arch_index({9, 0}), extent, 132, may_split);
  return tile_name(choice.row.sm90()) + " by " + std::to_string(choice.splits);
}

}  // namespace

TEST_CASE("gemm on sm_90a: a cluster shares K where tiles are few; none of the portable rows") {
  GemmTraits traits;
  traits.input = DType::bf16;
  const int arch = arch_index({9, 0});
  const auto choice = [&](const GemmExtent& extent) {
    return choose_gemm(traits, arch, extent, 132, /*may_split=*/false);  // takes no workspace
  };
  const auto config = [&](const GemmExtent& extent) { return choice(extent).row.sm90(); };
  CHECK(choice({64, 64, 8192}).splits > 1);
  CHECK(choice({64, 64, 64}).splits == 1);  // one K-tile
  CHECK(choice({4096, 4096, 4096}).splits == 1);
  CHECK(config({16, 4096, 4096}).swapped);
  CHECK_FALSE(config({4096, 4096, 4096}).swapped);
  CHECK(config({4096, 4096, 4096}).block_n >= 128);
  CHECK(config({256, 28672, 8192}).block_n == 224);  // 256 tiles: two waves, nearly full
  for (std::int64_t m : {1, 16, 64, 512, 4096}) CHECK(choice({m, 4096, 4096}).row.is_sm90());
  CHECK_FALSE(choice({64, 64, 0}).row.is_sm90());
  // What the caller chose.
  const GemmRow row = find_gemm_row(traits, arch, GemmTile{64, 128, 64, 9, 0, 5});
  REQUIRE(row.exists());
  CHECK(choose_gemm(traits, arch, {64, 4096, 4096}, 132, false, row, 5).splits == 5);
  CHECK(choose_gemm(traits, arch, {64, 4096, 128}, 132, false, row, 5).splits == 2);
  CHECK_FALSE(find_gemm_row(traits, arch, GemmTile{64, 128, 64, 9, 0, 9}).exists());
}

TEST_CASE(
    "gemm on sm_90a: tiles of 64 x 64 share K where 128 columns would need clusters of four") {
  GemmTraits traits;
  traits.input = DType::bf16;
  const auto tile = [&](const GemmExtent& extent) { return tile_and_splits(traits, extent); };
  const std::string swapped = "64x64x64x11 split swapped by ";
  CHECK(tile({64, 4096, 14336}) == swapped + "2");
  CHECK(tile({64, 2112, 7168}) == swapped + "3");
  CHECK(tile({64, 4096, 4096}) == "64x64x64x12 swapped by 1");  // 14.4 us, 15.0 with splits
  CHECK(tile({64, 5120, 17408}) == "64x128x64x9 split swapped by 2");
}

TEST_CASE("gemm on sm_90a: scales of blocks get upright tiles of 64 rows") {
  const int arch = arch_index({9, 0});
  GemmTraits traits;
  traits.input = DType::f8_e4m3;
  traits.scale_a = Scale::groups, traits.scale_b = Scale::blocks;
  const auto tile = [&](const GemmExtent& extent) { return tile_and_splits(traits, extent); };
  CHECK(tile({64, 4096, 14336}) == "64x64x128x9 split by 2");
  CHECK(tile({64, 1536, 19136}) == "64x64x128x9 split by 4");
  CHECK(tile({64, 4096, 7168}) == "64x32x128x15 by 1");
  CHECK(tile({160, 5120, 25600}) == "64x128x128x7 by 1");
  CHECK(tile({320, 2048, 3584}) == "64x96x128x9 by 1");
  CHECK(tile({128, 3072, 3072}) == "64x64x128x10 by 1");
  CHECK(tile({512, 2112, 7168}) == "128x64x128x7 by 1");
  CHECK(tile({16, 4096, 7168}) == "16x64x128x10 split swapped by 2");
  for (const GemmRow row : gemm_rows(traits, arch)) {
    if (row.sm90().swapped) CHECK(row.sm90().block_m < 64);
  }
  // Groups of one row on average get tiles of 16 rows.
  traits.grouping = Grouping::offsets;
  CHECK(tile({1, 4096, 1536, 32}) == "16x64x128x16 swapped by 1");
  CHECK(tile({64, 4096, 1536, 8}) == "64x128x128x7 by 1");
}

TEST_CASE(
    "gemm on sm_90a: two tiles of a cluster share weights beside a split K, if that reads them "
    "once") {
  const int arch = arch_index({9, 0});
  GemmTraits traits;
  traits.input = DType::bf16;
  const auto tile = [&](const GemmExtent& extent) { return tile_and_splits(traits, extent); };
  CHECK(tile({256, 2624, 19712}) == "128x96x64x7 split cluster 2 by 2");
  CHECK(tile({512, 1152, 13824}) == "128x96x64x7 split cluster 2 by 2");
  CHECK(tile({128, 6144, 14336}) == "128x96x64x8 split by 2");
  CHECK(tile({160, 2624, 19712}) == "128x96x64x7 split cluster 2 by 2");
  CHECK(tile({113, 6144, 14336}) == "128x96x64x8 split by 2");
  CHECK(tile({96, 2624, 19712}).find("128x96x64x7") == std::string::npos);
  for (std::int64_t m : {64, 320, 384, 640, 768}) {
    INFO(m);
    CHECK(tile({m, 2624, 19712}).find("128x96x64x7") == std::string::npos);
    CHECK(tile({m, 6144, 14336}).find("128x96x64x8") == std::string::npos);
  }
  for (std::int64_t m : {160, 192}) {
    CHECK(tile({m, 6144, 14336}).find("128x96x64x8") == std::string::npos);
  }
  const GemmRow row = find_gemm_row(traits, arch, GemmTile{128, 96, 64, 7, 2, 4});
  REQUIRE(row.exists());
  CHECK(choose_gemm(traits, arch, {256, 1536, 12160}, 132, false, row, 8).splits == 4);  // 8 CTAs
}

TEST_CASE("gemm on sm_90a: parts of K meet in a workspace where that fills the GPU at once") {
  const int arch = arch_index({9, 0});
  GemmTraits traits;
  traits.input = DType::bf16;
  const auto tile = [&](const GemmExtent& extent, bool may_split = true) {
    return tile_and_splits(traits, extent, may_split);
  };
  CHECK(tile({256, 1536, 12160}) == "128x96x64x6 split apart by 4");
  CHECK(tile({384, 1536, 12160}) == "128x144x64x6 split apart by 4");
  CHECK(tile({256, 2496, 18944}) == "128x160x64x6 split apart by 4");
  CHECK(tile({128, 2112, 16576}) == "128x96x64x6 split apart by 6");
  CHECK(tile({256, 1536, 12160}, false).find("apart") == std::string::npos);
  CHECK(tile({160, 1536, 12160}) == "128x96x64x6 split apart by 4");
  CHECK(tile({267, 3200, 17088}) == "144x128x64x6 split apart swapped by 2");
  for (std::int64_t m : {1, 64, 1024, 4096}) {
    INFO(m);
    CHECK(tile({m, 1536, 12160}).find("apart") == std::string::npos);
  }
  // A caller's choice gets no more parts than K-tiles, nor than run at once.
  const GemmRow row = find_gemm_row(traits, arch, GemmTile{128, 96, 64, 6, 1, 8});
  REQUIRE(row.exists());
  const auto splits = [&](const GemmExtent& extent) {
    return choose_gemm(traits, arch, extent, 132, true, row, 8).splits;
  };
  CHECK(splits({128, 1536, 12160}) == 8);
  CHECK(splits({256, 1536, 12160}) == 4);
  CHECK(splits({128, 1536, 192}) == 3);
  CHECK(splits({4096, 4096, 4096}) == 1);
  CHECK_FALSE(find_gemm_row(traits, arch, GemmTile{128, 96, 64, 6, 1, 9}).exists());
  traits.input = DType::f8_e4m3;
  CHECK(tile({256, 1536, 19136}) == "128x96x128x6 split apart by 4");
}

TEST_CASE("gemm on sm_90a: tiles of other heights serve rows that no tile of 128 fills") {
  const int arch = arch_index({9, 0});
  GemmTraits traits;
  traits.input = DType::bf16;
  const auto tile = [&](const GemmExtent& extent) {
    return tile_name(choose_gemm(traits, arch, extent, 132, true).row.sm90());
  };
  const auto is_tall = [](const std::string& name) {
    return name.starts_with("192x") || (name.find("swapped") != std::string::npos &&
                                        !name.starts_with("128x") && !name.starts_with("64x"));
  };
  CHECK(tile({287, 5120, 27648}) == "96x128x64x6 swapped");
  CHECK(tile({320, 4096, 4096}) == "80x128x64x7 swapped");
  CHECK(tile({168, 8192, 28672}) == "88x128x64x7 swapped");
  CHECK(tile({272, 2112, 7168}) == "80x64x64x9 swapped");
  CHECK(tile({448, 19648, 2496}) == "112x128x64x6 swapped");
  CHECK(tile({320, 6208, 4992}) == "88x192x64x5 swapped");
  CHECK(tile({165, 59136, 8192}) == "192x112x64x5");  // by one row of tiles, which reads b once
  CHECK(tile({1300, 7168, 18432}) == "192x128x64x4 swapped");
  CHECK(tile({1409, 3584, 3584}) == "160x128x64x5 swapped");
  CHECK(tile({387, 27648, 5120}) == "144x128x64x5 swapped");
  CHECK(tile({258, 12288, 4096}) == "160x192x64x4 swapped");
  CHECK(tile({535, 6016, 6912}) == "192x144x64x4");
  CHECK(tile({2823, 2560, 17216}) == "224x128x64x4 swapped");
  CHECK_FALSE(is_tall(tile({512, 4096, 4096})));
  CHECK_FALSE(is_tall(tile({8192, 8192, 8192})));
  // They are measured from 65 rows on, and above 1024 where 128 rows leave some of the last tile.
  CHECK_FALSE(is_tall(tile({64, 5120, 27648})));
  CHECK_FALSE(is_tall(tile({4096, 6144, 4096})));
  // A residual is read by elements beside a transposed output.
  traits.residual = DType::bf16;
  CHECK(tile({287, 5120, 27648}).find("swapped") == std::string::npos);
  CHECK(tile({535, 6016, 6912}) == "192x144x64x4");
  traits.residual = DType::none;
  traits.input = DType::f8_e4m3;
  CHECK(tile({287, 5120, 27648}) == "96x128x128x6 swapped");
  CHECK(tile({246, 5120, 27648}) == "88x128x128x7 swapped");
  CHECK(tile({149, 3072, 8192}) == "96x64x128x9 swapped");
  CHECK(tile({4096, 6144, 4096}) == "192x128x128x4 swapped");
  // Few tokens: tiles of 64 that all run at once, and 80 x 128 in place of two rounds of 64
  // columns.
  CHECK(tile({104, 2624, 8064}) == "64x64x128x12 swapped");
  CHECK(tile({24, 11520, 8192}) == "80x128x128x7 swapped");
  traits.fast = true;
  CHECK(tile({104, 2624, 8064}) != "64x64x128x12 swapped");
  CHECK(tile({24, 11520, 8192}) != "80x128x128x7 swapped");
  traits.fast = false;
  traits.scale_a = Scale::groups, traits.scale_b = Scale::blocks;
  for (std::int64_t m : {287, 387, 522}) CHECK_FALSE(is_tall(tile({m, 5120, 27648})));
}

namespace {

// What a caller can name of a row, and its dtypes' size.
std::string named(const GemmConfig& row) {
  return std::to_string(row.element_bytes) + " " + tile_name(row);
}
std::string named(const GemmSm90Config& row) {
  return std::to_string(row.element_bytes) + " " + std::to_string(row.block_m) + " " +
         std::to_string(row.block_n) + " " + std::to_string(row.stages) + " " +
         std::to_string(row.cluster) + (row.splits ? " splits" : "") +
         (row.block_scaled ? " scales of blocks" : "");  // no row is for calls with and without
}

template <class Config>
void check_names_differ(std::span<const Config> configs) {
  std::set<std::string> names;
  for (const Config& config : configs) {
    INFO(tile_name(config));
    CHECK(names.insert(named(config)).second);
  }
}

}  // namespace

TEST_CASE("rows are told apart by what a config names") {
  check_names_differ(gemm_configs());
  check_names_differ(gemm_sm90_configs());
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
    if (!why_not_sm90(traits, arch).empty()) continue;
    ++suited;
    INFO("traits " << bits);
    for (std::int64_t m : {1, 64, 300, 4096}) {
      const GemmChoice choice = choose_gemm(traits, arch, {m, 4096, 512}, 132, false);
      const auto rows = gemm_rows(traits, arch);
      CHECK(std::find(rows.begin(), rows.end(), choice.row) != rows.end());
      CHECK(choice.row.is_sm90());
    }
  }
  CHECK(suited > 100);
}

TEST_CASE("scales of blocks have rows on sm_90a for every M, also beside a bias") {
  const int arch = arch_index({9, 0});
  GemmTraits traits;
  traits.input = DType::f8_e4m3;
  traits.scale_a = Scale::groups;
  const auto widest = [&] {
    int columns = 0;
    for (const GemmRow row : gemm_rows(traits, arch)) {
      columns = std::max(columns, row.sm90().block_n);
      CHECK_FALSE(row.sm90().ping_pong);
      CHECK(shared_bytes(row.sm90(), traits) <= 227 * 1024);
    }
    return columns;
  };
  traits.scale_b = Scale::blocks;
  CHECK(widest() == 256);
  traits.bias = DType::bf16;  // has no room beside four stages of 256 columns
  CHECK(widest() == 224);
  traits.scale_b = Scale::groups;
  CHECK(widest() == 160);
  for (std::int64_t m : {1, 64, 300, 4096}) {
    CHECK(choose_gemm(traits, arch, {m, 4096, 7168}, 132, false).row.is_sm90());
  }
  CHECK_FALSE(find_gemm_row(traits, arch, GemmTile{128, 128, 128, 7}).exists());
  CHECK(find_gemm_row(traits, arch, GemmTile{128, 128, 128, 5}).exists());
  traits.scale_a = traits.scale_b = Scale::none;  // the rows of scales are for nothing else
  for (const GemmRow row : gemm_rows(traits, arch)) CHECK_FALSE(row.sm90().block_scaled);
}
