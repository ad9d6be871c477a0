// The arithmetic by which the sm_90a GEMM finds its tiles: divisions that the host prepares, and
// how the CTAs of a cluster divide K.
#include <cstdint>
#include <cstring>
#include <limits>

#include "jit/gemm/config.h"
#include "templates/gemm/params.h"
#include "tests/support/catch.h"

using namespace kiln;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

// As templates/gemm/raster.cuh divides.
std::int64_t divided(std::int64_t number, const GemmDivisor& divisor) {
  const std::uint64_t doubled = static_cast<std::uint32_t>(number) * 2u;
  return static_cast<std::int64_t>(doubled * divisor.multiplier >> 32 >> divisor.shift);
}

// Of a problem of bf16 in one of its rows.
GemmRaster raster_of(int m, int n, int k, const GemmSm90Config& config, int splits) {
  GemmProblem problem;
  problem.m = m, problem.n = n, problem.k = k, problem.batch = 1;
  Step step;
  step.arguments.set_params(GemmParams{});
  set_raster(problem, config, splits, step);
  GemmParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  return params.raster;
}

}  // namespace

TEST_CASE("the host's divisors divide every number") {
  for (std::int64_t value = 1; value <= kMost;
       value = value < 300 ? value + 1 : value * 3 / 2 + 1) {
    for (std::int64_t near : {value - 1, value, value + 1}) {
      if (near < 1 || near > kMost) continue;
      const GemmDivisor divisor = gemm_divisor(static_cast<int>(near));
      CHECK(divisor.value == near);
      bool right = true;
      for (std::int64_t quotient :
           {std::int64_t{0}, std::int64_t{1}, kMost / near / 2, kMost / near - 1, kMost / near}) {
        for (std::int64_t number : {quotient * near - 1, quotient * near, kMost}) {
          if (number < 0 || number > kMost) continue;
          right = right && divided(number, divisor) == number / near;
        }
      }
      CHECK(right);
    }
  }
}

TEST_CASE("a raster counts the tiles of what wgmma computes") {
  GemmSm90Config config = gemm_sm90_configs()[0];
  config.block_m = 128, config.block_n = 64, config.raster_rows = 8;
  GemmRaster raster = raster_of(1100, 500, 640, config, 1);
  CHECK((raster.last_group == 0 && raster.per_batch.value == 9 * 8));
  CHECK((raster.per_group.value == 8 * 8 && raster.last_rows.value == 9));
  CHECK((raster.part_k_tiles == 10 && raster.longer_parts == 0));
  CHECK(raster_of(0, 500, 640, config, 1).per_batch.value == 8);  // is explained, never computed
  config.swapped = true, config.cluster = 2;
  raster = raster_of(1100, 1000, 640, config, 1);
  CHECK((raster.last_group == 0 && raster.per_batch.value == 8 * 9));
  CHECK((raster.per_group.value == 8 * 9 && raster.last_rows.value == 8));
}

TEST_CASE("the last group of rows of tiles has the rows that do not fill another") {
  for (const int group : {4, 6, 8, 16}) {
    for (int rows = 1; rows <= 5 * group; ++rows) {
      const GemmRaster raster = gemm_raster(rows, 3, group);
      CHECK(raster.last_group * group + raster.last_rows.value == rows);
      CHECK(raster.last_rows.value < 2 * group);
      CHECK((raster.last_group == 0 || raster.last_rows.value >= group));
    }
  }
}

TEST_CASE("the last tiles are loaded in part where rows lie outside an operand") {
  GemmSm90Config config{.element_bytes = 2,
                        .block_m = 128,
                        .block_n = 192,
                        .stages = 4,
                        .groups = 2,
                        .reason = "one of 192 columns"};
  const auto is_tail = [](const GemmTail& tail, int begin, int count) {
    return tail.begin == begin && (begin < 0 || tail.count == count);
  };
  const auto check_rows = [&](int m, int begin, int count) {
    INFO(m);
    CHECK(is_tail(raster_of(m, 384, 640, config, 1).row_tail, begin, count));
    CHECK(raster_of(m, 384, 640, config, 1).column_tail.begin == -1);
  };
  check_rows(72, 0, 72);
  check_rows(112, 0, 112);
  check_rows(127, 0, 127);
  check_rows(128, -1, 0);
  check_rows(129, 128, 1);
  check_rows(700, 640, 60);
  check_rows(0, -1, 0);
  CHECK(is_tail(raster_of(128, 512, 640, config, 1).column_tail, 384, 128));
  config.swapped = true;
  const GemmRaster raster = raster_of(200, 512, 640, config, 1);
  CHECK(is_tail(raster.row_tail, 384, 128));
  CHECK(is_tail(raster.column_tail, 128, 72));
  config.cluster = 2;  // whose CTAs share the rows of a
  CHECK(raster_of(200, 512, 640, config, 1).column_tail.begin == -1);
  CHECK(is_tail(raster_of(200, 512, 640, config, 1).row_tail, 384, 128));
  config.cluster = 1, config.block_m = 32;  // few rows cost nothing
  CHECK(raster_of(3, 384, 640, config, 1).column_tail.begin == -1);
}

TEST_CASE("the CTAs of a cluster divide all K-tiles, of which the first have one more") {
  for (const int splits : {1, 2, 3, 8}) {
    for (const int k : {0, 1, 64, 65, 640, 4096, 8200}) {
      const GemmRaster raster = raster_of(64, 64, k, gemm_sm90_configs()[0], splits);
      CHECK(raster.part_k_tiles * splits + raster.longer_parts == (k + 63) / 64);
      CHECK((raster.longer_parts >= 0 && raster.longer_parts < splits));
    }
  }
}
