// The model knows a row by its tile alone. What its constants are fitted to is said beside them:
// all measurements are of bf16 or e4m3 on an H200, NT, with nothing in L2, unless said.
#include "jit/gemm/sm90_cost.h"

#include <algorithm>

#include "jit/op/checks.h"
#include "jit/op/occupancy.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

constexpr float kClocks = 1755;  // a microsecond

// Tiles of one kind have these constants. The defaults are fitted to layers of Llama-3.1-8B and
// 70B, Qwen2.5-7B and DeepSeek-V3 at M = 1 to 4096 (140 problems), shared_sum to 401 problems. A
// multiprocessor's clocks for 128 bytes of K of a tile are the slower of products and loads, and
// what a step takes in any case.
struct TileKind {
  float tensor_clocks = 1.45f;  // a multiple of what the tensor cores need at best
  float load_bytes = 69;        // of operands, a clock
  float step_clocks = 80;
  // In microseconds: of a tile that is written while nothing is multiplied, and of each output.
  float tile_time = 0.2f, output_time = 1.4e-4f;
  float last_tile = 0.9f;  // times that, for the end of the last, which all wait for
  float exposed = 0.46f;   // of the shorter of memory and products
  // In microseconds, where CTAs of a cluster share K: of a wave, whose sums go through shared
  // memory; of each output of each CTA; and times that, where tiles are neither swapped nor share
  // columns.
  float shared_sum = 1.6f;
  float remote_time = 2.4e-4f, upright_remote = 3;
};
constexpr TileKind kOthers;
// 16-bit tiles of more than 64 rows of a, 510 problems of M = 65 to 16384, most of them no multiple
// of 128. By kOthers small tiles seem slower than they are where K is long, and faster where it is
// short. Rows in groups were not among them and keep what was fitted to 681 problems before.
constexpr TileKind kTall = {.tensor_clocks = 1.22f,
                            .load_bytes = 64,
                            .step_clocks = 28,
                            .tile_time = 0.9f,
                            .output_time = 2e-5f,
                            .last_tile = 2,
                            .exposed = 0.8f,
                            .shared_sum = 1.2f};
constexpr TileKind kTallGroups = {.load_bytes = 55};
// Times the clocks of the tensor cores, of 16 bits: tiles in turns, and of three groups.
constexpr float kTurns = 0.98f, kThreeGroups = 1.015f;
// 8-bit floats with one scale: whose sums are promoted, 584 problems of M = 1 to 16384, and others,
// 90 of M = 65 to 4096.
constexpr TileKind promoted_or_fast(float tensor_clocks) {
  return {.tensor_clocks = tensor_clocks,
          .step_clocks = 120,
          .tile_time = 0.5f,
          .output_time = 1e-4f,
          .exposed = 0.4f};
}
constexpr TileKind kPromoted = promoted_or_fast(1.25f), kFast = promoted_or_fast(1.31f);
// Scales of blocks, 610 problems of M = 1 to 9000, most of them with few tiles, and 43 of groups.
constexpr TileKind kScaled = {.tensor_clocks = 1.5f,
                              .load_bytes = 54,
                              .step_clocks = 145,
                              .tile_time = 0.48f,
                              .exposed = 0,
                              .shared_sum = 2.8f,
                              .remote_time = 4.6e-5f,
                              .upright_remote = 1};
// Times the clocks of the tensor cores, where no second warpgroup fills the gaps. With scales of
// blocks, loads bound such tiles.
constexpr float kLoneGroup = 1.2f;
// Likewise with scales of blocks (the problems of kScaled): tiles of 192 columns, whose groups
// multiply in turns, unless there is a residual; and others whose columns are no whole blocks.
constexpr float kInTurns = 0.905f;
constexpr float kPartsOfBlocks = 1.1f;
// Likewise 8-bit floats with one scale: promoted tiles of 256 columns, which are promoted by
// halves, and those with turns, which are not promoted (the problems of kPromoted and kFast).
constexpr float kByHalves = 1.045f;
constexpr float kFastTurns = 1.15f;

// In microseconds.
constexpr float kStartTime = 2;  // until a CTA multiplies that is not persistent
// Parts that meet in a workspace were measured at 2.5 to 3.5 us, but of the tiles that they compete
// with the model says too much (60 shapes, M = 128 to 512).
constexpr float kApartTime = 4;
constexpr float kApartSum = 8e-5f;    // for each output of each part
constexpr float kNarrowSplit = 1.5f;  // of tiles of 64 x 64 of 16 bits (46 shapes, M = 40 and 64)
constexpr float kSm90BytesPerSm = 33000;  // from memory: 4.35 TB/s among 132
// A b of more bytes is read again for each group of rows of tiles but the first, which costs such a
// share of the time that memory takes (444 problems each on an H100 and on an H200; the problems of
// kTall, all of an H200, would have 0.05).
constexpr float kStaysInL2 = 2e7f;
constexpr float kReadAgain = 0.3f;
// Swapped tiles of the same columns of b run side by side and mostly read them once. Where b is
// larger than this, they drift apart, and each further tile costs as much (152 x 57344 x 8192: 333
// and 355 us with two, 272 with one; 37 problems of b from 400 MB on).
constexpr float kDriftsApart = 4e8f;

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

float scaled_clocks(int columns, bool has_residual) {
  if (columns == 192 && !has_residual) return kInTurns;
  return columns % kGemmScaleBlock == 0 ? 1.0f : kPartsOfBlocks;
}

const TileKind& kind_of(const GemmSm90Config& config, const GemmTraits& traits) {
  if (config.element_bytes == 2 && config.block_m > 64) {
    return traits.grouping == Grouping::none ? kTall : kTallGroups;
  }
  if (!is_f8(traits.input)) return kOthers;
  if (traits.block_scaled()) return kScaled;
  return traits.fast ? kFast : kPromoted;
}

// Times the clocks of the tensor cores.
float factor_of(const GemmSm90Config& config, const GemmTraits& traits, int columns) {
  if (config.element_bytes == 2 && config.ping_pong) return kTurns;
  if (config.element_bytes == 2 && config.groups == 3) return kThreeGroups;
  if (!is_f8(traits.input)) return 1.0f;
  if (traits.block_scaled()) return scaled_clocks(columns, traits.residual != DType::none);
  if (traits.fast) return config.ping_pong ? kFastTurns : 1.0f;
  return columns == 256 ? kByHalves : 1.0f;
}

float step_clocks(int rows, int columns, const GemmSm90Config& config, const GemmTraits& traits) {
  const TileKind& kind = kind_of(config, traits);
  const auto r = static_cast<float>(rows), c = static_cast<float>(columns);
  float tensor = r * c / 32 * kind.tensor_clocks;
  if (config.groups == 1 && !traits.block_scaled()) tensor *= kLoneGroup;
  const float load = (r + c / static_cast<float>(config.cluster)) * 128 / kind.load_bytes;
  return std::max(tensor, load) + kind.step_clocks;
}

// How many bytes of b are read from memory beyond the first time.
float bytes_read_again(const GemmSm90Config& config, const GemmTraits& traits,
                       const GemmExtent& extent) {
  const float b = static_cast<float>(extent.n) * static_cast<float>(extent.k) *
                  static_cast<float>(size_of(traits.input));
  if (b <= (config.swapped ? kDriftsApart : kStaysInL2)) return 0;
  const auto batch = static_cast<float>(extent.batch);
  if (config.swapped) {
    return b * static_cast<float>(quotient_up(extent.m, config.block_m) - 1) * batch;
  }
  const std::int64_t down =
      quotient_up(extent.m, static_cast<std::int64_t>(config.block_m) * config.cluster);
  const int last = gemm_last_group(static_cast<int>(down), config.raster_rows);
  return b * static_cast<float>(last) * batch;
}

}  // namespace

float compulsory_bytes(const GemmTraits& traits, const GemmExtent& extent) {
  const auto m = static_cast<float>(extent.m), n = static_cast<float>(extent.n);
  const auto k = static_cast<float>(extent.k), batch = static_cast<float>(extent.batch);
  const auto in = static_cast<float>(size_of(traits.input));
  const auto out = static_cast<float>(size_of(traits.output));
  return batch * ((m + n) * k * in + m * n * out);
}

std::int64_t sm90_ctas(const GemmSm90Config& config, const GemmExtent& extent) {
  const int rows = config.swapped ? config.block_n : config.block_m;
  const int columns = config.swapped ? config.block_m : config.block_n;
  const std::int64_t all_rows = config.swapped ? extent.n : extent.m;
  const std::int64_t all_columns = config.swapped ? extent.m : extent.n;
  return quotient_up(all_rows, static_cast<std::int64_t>(rows) * config.cluster) * config.cluster *
         quotient_up(all_columns, columns) * extent.batch;
}

float sm90_cost(const GemmSm90Config& config, const GemmTraits& traits, const GemmExtent& extent,
                int sm_count, int splits) {
  const int rows = config.swapped ? config.block_n : config.block_m;
  const int columns = config.swapped ? config.block_m : config.block_n;
  const std::int64_t ctas = sm90_ctas(config, extent) * splits;
  const std::int64_t k_tiles = quotient_up(extent.k * size_of(traits.input), 128);
  const std::int64_t part = quotient_up(k_tiles, splits);

  // Waves of CTAs: of each, the slower of its products and of its share of the bytes, since a
  // persistent CTA loads on while it writes.
  const int cluster = config.cluster * (config.apart ? 1 : splits);
  const std::int64_t slots =
      std::int64_t{cluster} * clusters_at_once(cluster, config.residents, sm_count);
  const float step =
      step_clocks(rows, columns, config, traits) / kClocks * factor_of(config, traits, columns);
  const float rate = kSm90BytesPerSm * static_cast<float>(sm_count);
  const float memory = compulsory_bytes(traits, extent) / rate;
  const auto outputs = static_cast<float>(rows * columns);
  const TileKind& kind = kind_of(config, traits);
  const float tile_time = kind.tile_time + kind.output_time * outputs;
  const auto wave_time = [&](std::int64_t active) {
    if (active == 0) return 0.0f;
    const std::int64_t on_sm = quotient_up(active * config.residents, slots);
    const float products = static_cast<float>(on_sm * part) * step +
                           (config.ping_pong ? 0 : tile_time) +
                           (config.splits ? kStartTime / static_cast<float>(config.residents) : 0);
    const float bytes = memory * static_cast<float>(active) / static_cast<float>(ctas);
    return std::max(products, bytes) + kind.exposed * std::min(products, bytes);
  };
  float time = static_cast<float>(ctas / slots) * wave_time(slots) + wave_time(ctas % slots) +
               kind.last_tile * tile_time +
               kReadAgain * bytes_read_again(config, traits, extent) / rate;
  if (config.apart) return time + kApartTime + kApartSum * outputs * static_cast<float>(splits);
  if (config.splits) {
    if (rows == 64 && columns == 64 && size_of(traits.input) == 2) time += kNarrowSplit;
    // Nothing is multiplied meanwhile, and the next wave waits for the memory of this one's parts.
    const auto waves = static_cast<float>(quotient_up(ctas, slots));
    const bool is_upright = !config.swapped && config.cluster == 1;
    time +=
        waves * (kind.shared_sum + kind.remote_time * (is_upright ? kind.upright_remote : 1.0f) *
                                       outputs * static_cast<float>(splits - 1));
  }
  return time;
}

}  // namespace kiln
