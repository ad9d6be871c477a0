#include "jit/gemm/config.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "jit/gemm/portable_cost.h"
#include "jit/gemm/rows.h"
#include "jit/gemm/sm90_cost.h"
#include "jit/gemm/tuning.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

constexpr int kSplits[] = {2, 3, 4, 5, 6, 8, 12, 16};
constexpr int kMostTailSplits = 8;  // more parts beside whole tiles are slower by far

// The best so far.
struct Offers {
  GemmChoice best;
  float best_cost = -1;

  void add(GemmRow row, int splits, std::int64_t whole, float cost) {
    if (best_cost >= 0 && best_cost <= cost) return;
    best = {row, splits, whole};
    best_cost = cost;
  }
};

void offer_portable(Offers& offers, GemmRow row, const PortableCost& here, bool may_split) {
  offers.add(row, 1, 0, here.cost(1));
  if (!may_split) return;
  for (const int splits : kSplits) {
    if (!here.can_split(here.tiles(), splits, here.resident())) break;
    offers.add(row, splits, 0, here.cost(splits));
  }
  for (int on_sm = 1; on_sm <= here.resident(); ++on_sm) {
    const std::int64_t places = static_cast<std::int64_t>(on_sm) * here.sm_count();
    const std::int64_t whole = here.tiles() / places * places;
    if (whole == 0 || whole == here.tiles() || here.whole_on_sm(whole) != on_sm) continue;
    for (const int splits : kSplits) {
      if (splits > kMostTailSplits || !here.can_split(here.tiles() - whole, splits, on_sm)) break;
      offers.add(row, splits, whole, here.tail_cost(whole, on_sm, splits));
    }
  }
}

// Tiles of few tokens pay where the weights are read once: at M = 64, two tiles of 32 take 1.04 to
// 1.16 times as long as one of 64, which the model does not see. Tiles of 128 x 64 are measured up
// to 1024 tokens, all others from 65 on. 16-bit ones are left out at multiples of 128 above 1024
// tokens, where they gain nothing on an H200, and lose 3 % on an H100 (2048 x 28672 x 4096), and
// above 4096, which was measured on an H200 alone (1.002 times as fast with them).
// Promoted sums of 8-bit floats differ: up to four tiles of 64 tokens are faster than one of more,
// where all run at once (104 x 2624 x 8064: 0.87), and 80 x 128 is where two rounds of 64 weights
// would not be full (24 x 11520 x 8192: 0.91).
// Groups of a few rows differ in size, and tiles of 64 rows lose where most have one row (32 groups
// of 1536 x 4096: 1.2 times the time of 16 x 64).
bool serves_rows(const GemmSm90Config& config, const GemmTraits& traits, const GemmExtent& extent,
                 int sm_count) {
  constexpr std::int64_t kFewest = 16, kFew = 64, kSome = 256, kSmall = 1024, kMost = 4096;
  const std::int64_t m = extent.m;
  if (!config.swapped) {
    return config.block_m > kFew || traits.grouping == Grouping::none || m > kFewest;
  }
  const bool has_one_scale = is_promoted(traits) && !traits.block_scaled();
  if (config.block_m <= kFew) {
    return m <= config.block_m ||
           (has_one_scale && config.block_m == kFew && config.cluster == 1 && !config.splits &&
            m <= kSome && sm90_ctas(config, extent) <= sm_count);
  }
  if (config.block_n == 64) return m <= kSmall && (m > kFew || config.block_m == 128);
  if (m <= kFew) return has_one_scale && config.block_m == 80;
  return m <= kSmall || config.element_bytes == 1 || (m <= kMost && m % 128 != 0);
}

// Whether tiles of 96 columns that share K have all rows of a in one cluster. Otherwise several
// rows of tiles read the weights, and L2 limits them (256 x 3008 x 14464: 47.6 us, 44.6 by another
// row).
bool suits(const GemmSm90Config& config, const GemmExtent& extent) {
  if (!config.splits || config.swapped || config.apart || config.block_n != 96) return true;
  const std::int64_t tiles = (extent.m + config.block_m - 1) / config.block_m;
  return tiles == config.cluster || (config.cluster > 1 && tiles == 2 * config.cluster);
}

// The same of rows whose parts of K meet in a workspace, which are measured up to 1024 rows of a.
// Up to 128, clusters of two are as good (128 x 6144 x 8704: 34.2 us, 35.1 apart), and so are
// narrow tiles, as each reads weights of its own.
bool suits_apart(const GemmSm90Config& config, const GemmExtent& extent, int splits) {
  constexpr std::int64_t kMost = 1024;
  if (extent.m > kMost) return false;
  if (extent.m > 128) return splits > 1;
  return !config.swapped && config.block_n == 96 && splits > 2;
}

void offer_sm90(Offers& offers, GemmRow row, const GemmTraits& traits, const GemmExtent& extent,
                int sm_count, bool may_split, bool is_only, int only_splits) {
  const GemmSm90Config& config = row.sm90();
  if (!serves_rows(config, traits, extent, sm_count) && !is_only) return;
  if (!suits(config, extent) && !is_only) return;
  const std::int64_t k_tiles = (extent.k + config.block_k - 1) / config.block_k;
  std::int64_t most = std::min<std::int64_t>(most_splits(config), k_tiles);
  // Parts that meet in a workspace all run at once, which bounds its size.
  if (config.apart)
    most = std::min(most, sm_count / std::max<std::int64_t>(sm90_ctas(config, extent), 1));
  most = std::max<std::int64_t>(most, 1);
  const int last = static_cast<int>(
      config.splits && only_splits > 0 ? std::min<std::int64_t>(only_splits, most) : most);
  const int first = config.splits && only_splits > 0 ? last : 1;
  for (int splits = first; splits <= last; ++splits) {
    if (config.apart && !is_only && !(may_split && suits_apart(config, extent, splits))) continue;
    offers.add(row, splits, 0, sm90_cost(config, traits, extent, sm_count, splits));
  }
}

GemmChoice compute_choice(const GemmTraits& traits, int arch, const GemmExtent& extent,
                          int sm_count, bool may_split, GemmRow only, int only_splits) {
  Offers offers;
  const float memory_time = memory_time_of(traits, extent, sm_count);
  const auto consider = [&](GemmRow row) {
    if (row.is_sm90()) {
      offer_sm90(offers, row, traits, extent, sm_count, may_split, only.exists(), only_splits);
    } else {
      offer_portable(offers, row, PortableCost(row.portable(), arch, extent, sm_count, memory_time),
                     may_split);
    }
  };
  if (extent.k == 0) return {first_portable_row(traits, arch)};  // nothing is multiplied
  if (only.exists()) {
    consider(only);
  } else {
    for_each_row(traits, arch, consider);
  }
  return offers.best;
}

// What the table says, where its tile is among the rows that the model would choose from, which are
// those that prewarming knows. A portable tile is split as the model says.
std::optional<GemmChoice> measured_choice(const GemmTuning& tuning, const GemmTraits& traits,
                                          int arch, const GemmExtent& extent, int sm_count,
                                          bool may_split) {
  // What was measured has neither scales of blocks nor groups.
  if (traits.block_scaled() || traits.grouping != Grouping::none) return std::nullopt;
  const TunedKey key{{arch, sm_count}, traits.input,   size_of(traits.output),
                     traits.major_a,   traits.major_b, traits.fast,
                     extent.batch,     extent.n,       extent.k};
  const TunedGemm* found = tuning.find(key, extent.m);
  if (found == nullptr) return std::nullopt;
  const GemmRow row = find_gemm_row(traits, arch, found->tile);
  const bool sm90 = extent.k > 0 && why_not_sm90(traits, arch).empty();
  if (!row.exists() || row.is_sm90() != sm90) return std::nullopt;
  if (sm90 && row.sm90().apart && !may_split) return std::nullopt;  // there is no workspace
  GemmChoice choice =
      compute_choice(traits, arch, extent, sm_count, may_split, row, found->tile.splits);
  choice.measured_m = found->m;
  return choice;
}

// Each thread's last choices, by a direct-mapped slot: computing one and encoding the tensor maps
// of an sm_90a launch took 2.5 us of each call. What another tuning table said is another question.
struct ChoiceSlot {
  std::array<std::int64_t, 6> question{-1};
  const GemmTuning* tuning = nullptr;
  GemmRow only;
  Traits traits{};
  GemmChoice answer;
};
constexpr std::size_t kChoiceSlots = 128;
thread_local ChoiceSlot t_choices[kChoiceSlots];

}  // namespace

GemmChoice choose_gemm(const GemmTraits& traits, int arch, const GemmExtent& extent, int sm_count,
                       bool may_split, GemmRow only, int only_splits) {
  const GemmTuning* tuning = only.exists() ? nullptr : gemm_tuning();
  const std::array<std::int64_t, 6> question{
      extent.m,
      extent.n,
      extent.k,
      extent.batch,
      std::int64_t{sm_count} << 32 | arch << 8 | only_splits << 1 | (may_split ? 1 : 0),
      only.row};
  const Traits words = std::bit_cast<Traits>(traits);
  std::uint64_t hash = 0;
  for (const std::int64_t word : question) {
    hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  ChoiceSlot& slot = t_choices[(hash ^ words[0] ^ words[1]) % kChoiceSlots];
  if (slot.question != question || slot.tuning != tuning || !(slot.only == only) ||
      slot.traits != words) {
    std::optional<GemmChoice> measured;
    if (tuning) measured = measured_choice(*tuning, traits, arch, extent, sm_count, may_split);
    const GemmChoice answer =
        measured ? *measured
                 : compute_choice(traits, arch, extent, sm_count, may_split, only, only_splits);
    slot = {question, tuning, only, words, answer};
  }
  return slot.answer;
}

}  // namespace kiln
