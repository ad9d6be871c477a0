#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "jit/arch.h"
#include "jit/config.h"
#include "jit/gemm_rows.h"
#include "jit/gemm_sm90_cost.h"
#include "jit/gemm_tuning.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

// What the cost knows of the device beside the rates, in microseconds of an H200. On other GPUs
// all are slower together: the bytes that memory brings for each product hardly differ.
constexpr float kTileTime = 4.5f;      // of a CTA before the first product and after the last
constexpr float kBytesPerSm = 30300;   // from memory, a microsecond: 4.0 TB/s among 132
constexpr float kExposed = 0.2f;       // of the shorter of memory and products
constexpr float kSumTime = 2;          // until a CTA knows that it is the one that sums a tile
constexpr float kHiddenSumTime = 1;    // where whole tiles run beside it
constexpr float kSummedBytes = 80000;  // that it then reads, a microsecond
constexpr float kDoubt = 0.02f;        // a doubled split must promise more than this
constexpr float kLaunchTime = 2;
constexpr int kSplits[] = {2, 3, 4, 5, 6, 8, 12, 16};
constexpr int kMostTailSplits = 8;  // more parts beside whole tiles are slower by far
constexpr std::int64_t kMostWorkspace = 64 << 20;

// A row for a problem on a device.
struct Candidate {
  const GemmConfig* config;
  int sm_count;
  int resident;  // CTAs that fit on a multiprocessor
  std::int64_t tiles;
  int k_tiles;
  float memory_time;

  float area() const { return static_cast<float>(config->block_m * config->block_n); }
  int part(int splits) const { return (k_tiles + splits - 1) / splits; }  // K-tiles of the longest

  // One CTA's products of `k` K-tiles, alone on its multiprocessor.
  float alone_time(int k) const { return outputs(k) / static_cast<float>(config->rate_alone); }
  // What CTAs with `k` K-tiles in all take when the multiprocessor is full.
  float full_time(int k) const { return outputs(k) / static_cast<float>(config->rate_full); }
  float busy_time(int ctas, int k) const { return std::max(alone_time(k), full_time(ctas * k)); }

  float with_memory(float time) const {
    return std::max(time, memory_time) + kExposed * std::min(time, memory_time) + kLaunchTime;
  }
  float with_sum(float time, int splits, float sum_time) const {
    const auto parts = static_cast<float>(splits);
    return (time + sum_time + parts * area() * 4 / kSummedBytes) * (1 + kDoubt * std::log2(parts));
  }

  // Each tile by `splits` CTAs.
  float cost(int splits) const {
    const auto ctas = static_cast<unsigned long long>(tiles) * static_cast<unsigned>(splits);
    const auto on_sm = static_cast<unsigned>((ctas + static_cast<unsigned>(sm_count) - 1) /
                                             static_cast<unsigned>(sm_count));  // on the busiest
    const auto fit = static_cast<unsigned>(resident);
    const int k = part(splits);
    float time = static_cast<float>(on_sm / fit) * (busy_time(resident, k) + kTileTime);
    if (on_sm % fit != 0) time += busy_time(static_cast<int>(on_sm % fit), k) + kTileTime;
    time = with_memory(time);
    return splits == 1 ? time : with_sum(time, splits, kSumTime);
  }

  // The first `whole` tiles, so many on each multiprocessor at a time, by a CTA each; the others,
  // which are fewer, by `splits` CTAs each. These run beside the last whole tiles if more fit.
  float tail_cost(std::int64_t whole, int on_sm, int splits) const {
    const std::int64_t parts = (tiles - whole) * splits;
    const int more = static_cast<int>((parts + sm_count - 1) / sm_count) * part(splits);
    const auto waves = static_cast<float>(whole / (static_cast<std::int64_t>(on_sm) * sm_count));
    const float wave = busy_time(on_sm, k_tiles) + kTileTime;
    if (on_sm == resident) {
      const float tail = std::max(alone_time(part(splits)), full_time(more));
      return with_sum(with_memory(waves * wave + tail), splits, kSumTime);
    }
    const float last = std::max(alone_time(k_tiles), full_time(on_sm * k_tiles + more));
    return with_sum(with_memory((waves - 1) * wave + last + kTileTime), splits, kHiddenSumTime);
  }

  // So many CTAs on each multiprocessor compute the first `whole` tiles at a time.
  int whole_on_sm(std::int64_t whole) const {
    int on_sm = resident;
    while (whole % (static_cast<std::int64_t>(on_sm) * sm_count) != 0) --on_sm;
    return on_sm;
  }

  // Parts have two K-tiles or more and must fit on the device at once: a second wave of parts is
  // slower than whole tiles.
  bool can_split(std::int64_t split_tiles, int splits, int on_sm) const {
    const std::int64_t parts = split_tiles * splits;
    return parts <= static_cast<std::int64_t>(on_sm) * sm_count && 2 * splits <= k_tiles &&
           gemm_workspace_bytes(parts, config->block_m, config->block_n) <= kMostWorkspace;
  }

 private:
  float outputs(int k) const {
    return area() * static_cast<float>(k) * static_cast<float>(config->block_k) / 4096;
  }
};

Candidate candidate(const GemmConfig& config, int arch, const GemmExtent& extent, int sm_count,
                    float memory_time) {
  const int on_sm = arch_table()[static_cast<std::size_t>(arch)].shared_bytes_per_sm;
  return {&config,
          sm_count,
          std::max(1, on_sm / (shared_bytes(config) + 1024)),
          gemm_tiles(static_cast<int>(extent.m), static_cast<int>(extent.n),
                     static_cast<int>(extent.batch), config.block_m, config.block_n),
          static_cast<int>((extent.k + config.block_k - 1) / config.block_k),
          memory_time};
}

float memory_time_of(const GemmTraits& traits, const GemmExtent& extent, int sm_count) {
  return compulsory_bytes(traits, extent) / (kBytesPerSm * static_cast<float>(sm_count));
}

// The best so far.
struct Offers {
  Choice best;
  float best_cost = -1;

  void add(int row, int splits, std::int64_t whole, float cost) {
    if (best_cost >= 0 && best_cost <= cost) return;
    best = {row, splits, whole};
    best_cost = cost;
  }
};

void offer_portable(Offers& offers, int row, const Candidate& here, bool may_split) {
  offers.add(row, 1, 0, here.cost(1));
  if (!may_split) return;
  for (const int splits : kSplits) {
    if (!here.can_split(here.tiles, splits, here.resident)) break;
    offers.add(row, splits, 0, here.cost(splits));
  }
  for (int on_sm = 1; on_sm <= here.resident; ++on_sm) {
    const std::int64_t places = static_cast<std::int64_t>(on_sm) * here.sm_count;
    const std::int64_t whole = here.tiles / places * places;
    if (whole == 0 || whole == here.tiles || here.whole_on_sm(whole) != on_sm) continue;
    for (const int splits : kSplits) {
      if (splits > kMostTailSplits || !here.can_split(here.tiles - whole, splits, on_sm)) break;
      offers.add(row, splits, whole, here.tail_cost(whole, on_sm, splits));
    }
  }
}

void offer_sm90(Offers& offers, int row, const GemmTraits& traits, const GemmExtent& extent,
                int sm_count, bool is_only, int only_splits) {
  const GemmConfig& config = gemm_configs()[static_cast<std::size_t>(row)];
  // Tiles of few tokens pay where the weights are read once: at M = 64, two tiles of 32 take 1.04
  // to 1.16 times as long as one of 64, which the model does not see. Those of 128 are measured up
  // to four of them.
  constexpr int kMostTokens = 128;
  const std::int64_t served = config.block_m < kMostTokens ? config.block_m : 4 * kMostTokens;
  if (config.sm90.swapped && extent.m > served && !is_only) return;
  const std::int64_t k_tiles = (extent.k + config.block_k - 1) / config.block_k;
  const auto most = static_cast<int>(
      std::min<std::int64_t>(config.sm90.splits ? kMostCluster : 1, k_tiles));  // one or more each
  const int first = config.sm90.splits && only_splits > 0 ? std::min(only_splits, most) : 1;
  const int last = config.sm90.splits && only_splits > 0 ? first : most;
  for (int splits = first; splits <= last; ++splits) {
    offers.add(row, splits, 0, sm90_cost(config, traits, extent, sm_count, splits));
  }
}

Choice compute_choice(const GemmTraits& traits, int arch, const GemmExtent& extent, int sm_count,
                      bool may_split, int only_row, int only_splits) {
  Offers offers;
  const float memory_time = memory_time_of(traits, extent, sm_count);
  const auto consider = [&](int row) {
    const GemmConfig& config = gemm_configs()[static_cast<std::size_t>(row)];
    if (config.is_sm90()) {
      offer_sm90(offers, row, traits, extent, sm_count, only_row >= 0, only_splits);
    } else {
      offer_portable(offers, row, candidate(config, arch, extent, sm_count, memory_time),
                     may_split);
    }
  };
  if (extent.k == 0) return {first_portable_row(traits, arch)};  // nothing is multiplied
  if (only_row >= 0) {
    consider(only_row);
  } else {
    for_each_row(traits, arch, consider);
  }
  return offers.best;
}

// What the table says, where its tile is among the rows that the model would choose from, which are
// those that prewarming knows. A portable tile is split as the model says.
std::optional<Choice> measured_choice(const GemmTuning& tuning, const GemmTraits& traits, int arch,
                                      const GemmExtent& extent, int sm_count, bool may_split) {
  const TunedKey key{arch,           sm_count,       traits.input, size_of(traits.output),
                     traits.major_a, traits.major_b, traits.fast,  extent.batch,
                     extent.n,       extent.k};
  const TunedGemm* found = tuning.find(key, extent.m);
  if (found == nullptr) return std::nullopt;
  const int row = find_gemm_row(traits, arch, found->tile);
  const bool sm90 = why_not_sm90(traits, arch, extent.k).empty();
  if (row < 0 || gemm_configs()[static_cast<std::size_t>(row)].is_sm90() != sm90) {
    return std::nullopt;
  }
  Choice choice =
      compute_choice(traits, arch, extent, sm_count, may_split, row, found->tile.splits);
  choice.measured_m = found->m;
  return choice;
}

// Each thread's last choices, by a direct-mapped slot: computing one and encoding the tensor maps
// of an sm_90a launch took 2.5 us of each call. What another tuning table said is another question.
struct ChoiceSlot {
  std::array<std::int64_t, 6> question{-1};
  const GemmTuning* tuning = nullptr;
  Words traits{};
  Choice answer;
};
constexpr std::size_t kChoiceSlots = 128;
thread_local ChoiceSlot t_choices[kChoiceSlots];

}  // namespace

Choice choose_gemm(const GemmTraits& traits, int arch, const GemmExtent& extent, int sm_count,
                   bool may_split, int only_row, int only_splits) {
  const GemmTuning* tuning = only_row < 0 ? gemm_tuning() : nullptr;
  const std::array<std::int64_t, 6> question{
      extent.m,
      extent.n,
      extent.k,
      extent.batch,
      std::int64_t{sm_count} << 32 | arch << 8 | only_splits << 1 | (may_split ? 1 : 0),
      only_row};
  const Words words = std::bit_cast<Words>(traits);
  std::uint64_t hash = 0;
  for (const std::int64_t word : question) {
    hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  ChoiceSlot& slot = t_choices[(hash ^ words[0] ^ words[1]) % kChoiceSlots];
  if (slot.question != question || slot.tuning != tuning || slot.traits != words) {
    std::optional<Choice> measured;
    if (tuning) measured = measured_choice(*tuning, traits, arch, extent, sm_count, may_split);
    const Choice answer =
        measured ? *measured
                 : compute_choice(traits, arch, extent, sm_count, may_split, only_row, only_splits);
    slot = {question, tuning, words, answer};
  }
  return slot.answer;
}

}  // namespace kiln
