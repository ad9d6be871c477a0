#include <algorithm>
#include <cstring>

#include "jit/attention/family.h"
#include "jit/attention/paths.h"
#include "jit/attention/sm90_config.h"
#include "jit/op/arch.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

const Arch& limits(int arch) { return arch_table()[static_cast<std::size_t>(arch)]; }

constexpr int kAnyKeys = 0x7fffffff;

// Calls `use(row)` for the rows of which a call takes the first that admits its keys; stops where
// it returns true.
template <class Use>
void for_each_row(const AttentionTraits& traits, int arch, Use use) {
  if (limits(arch).number != 90 || !traits.aligned) return;
  const Masks masks = traits.mask == Mask::none ? Masks::none : Masks::some;
  const Work work = work_of(traits);
  const auto serves = [&](const AttentionSm90Config& config) {
    return traits.head_dim >= config.min_dim && traits.head_dim <= config.max_dim &&
           traits.head_dim_v <= config.max_dim_v && work <= config.work &&
           (config.masks == Masks::any || config.masks == masks);
  };
  const auto configs = attention_sm90_configs();
  for (std::size_t row = 0; row < configs.size(); ++row) {
    if (serves(configs[row]) && use(static_cast<int>(row))) return;
  }
}

// -1: none.
int first_row(const AttentionTraits& traits, int arch, std::int64_t keys) {
  int first = -1;
  for_each_row(traits, arch, [&](int row) {
    const int most = attention_sm90_configs()[static_cast<std::size_t>(row)].max_keys;
    if (most != 0 && keys > most) return false;
    first = row;
    return true;
  });
  return first;
}

// Says whether a tensor map admits the stride of a dimension of `size` entries: none is 0 or
// negative.
bool is_map_stride(long long stride, long long size, int element_bytes) {
  constexpr long long kMost = 1LL << 40;  // bytes
  return size <= 1 || (stride > 0 && stride < kMost / element_bytes);
}

bool have_maps(const AttentionParams& p, int element_bytes) {
  const auto is_map = [&](long long batch, long long row, long long head, int heads, int rows) {
    return is_map_stride(batch, p.batch, element_bytes) &&
           is_map_stride(row, rows, element_bytes) && is_map_stride(head, heads, element_bytes);
  };
  return is_map(p.q_batch, p.q_row, p.q_head, p.heads, p.len_q) &&
         is_map(p.k_batch, p.k_row, p.k_head, p.heads_kv, p.len_kv) &&
         is_map(p.v_batch, p.v_row, p.v_head, p.heads_kv, p.len_kv) &&
         is_map(p.out_batch, p.out_row, p.out_head, p.heads, p.len_q);
}

}  // namespace

int shared_bytes(const AttentionSm90Config& config, const AttentionTraits& traits) {
  return attention_sm90_shared_bytes(traits.head_dim, traits.head_dim_v, config.block_q,
                                     config.block_kv, config.stages, config.q_stages,
                                     config.staged_output);
}

std::string tile_name(const AttentionSm90Config& config) {
  return std::to_string(config.block_q) + "x" + std::to_string(config.block_kv) + "x" +
         std::to_string(config.stages);
}

std::string why_not_attention_sm90(const AttentionTraits& traits, int arch) {
  if (limits(arch).number != 90) return "wgmma is an instruction of compute capability 9.0 alone";
  if (!traits.aligned) {
    return "q, k, v or out admits no tensor map: its base and its strides must be multiples of 16 "
           "bytes";
  }
  return first_row(traits, arch, kAnyKeys) >= 0 ? "" : "no tile has registers for such a variant";
}

std::vector<int> attention_sm90_rows(const AttentionTraits& traits, int arch) {
  std::vector<int> rows;
  for_each_row(traits, arch, [&](int row) {
    rows.push_back(row);
    return attention_sm90_configs()[static_cast<std::size_t>(row)].max_keys == 0;
  });
  return rows;
}

int heads_dealt_together(std::int64_t heads, std::int64_t tiles, int sm_count) {
  // Rounds are dealt back and forth, so that two of them are a whole. At least 16 heads: with
  // fewer, more than 8 CTAs would read the same keys at a time, which saves nothing.
  const std::int64_t whole = 2 * std::int64_t{sm_count};
  const std::int64_t least = std::max<std::int64_t>(16, (whole + tiles - 1) / tiles);
  if (heads <= 2 * least) return static_cast<int>(heads);
  std::int64_t best = least, best_rest = whole;
  for (std::int64_t count = least; count <= 2 * least + 1; ++count) {
    const std::int64_t over = count * tiles % whole;
    const std::int64_t rest = std::min(over, whole - over);
    if (rest < best_rest) best = count, best_rest = rest;
  }
  return static_cast<int>(best);
}

bool resolve_attention_sm90(AttentionProblem& problem, const runtime::Device& device,
                            bool may_split) {
  const int arch = arch_of(device);
  const AttentionTraits& traits = problem.traits;
  const int row = first_row(traits, arch, problem.keys);
  if (row < 0) return false;
  const std::int64_t sharing = problem.heads / std::max(problem.heads_kv, 1);
  if (problem.len_q * sharing <= 64 || problem.len_kv == 0) return false;
  AttentionParams params;
  Step& step = problem.recipe.first();
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  if (!have_maps(params, size_of(traits.q))) return false;
  const AttentionSm90Config& config = attention_sm90_configs()[static_cast<std::size_t>(row)];
  const std::int64_t heads = std::int64_t{problem.batch} * problem.heads;
  const std::int64_t tiles = (problem.len_q + config.block_q - 1) / config.block_q;
  const int sm_count = device.info().sm_count;
  if (heads * tiles > 0x7fffffff - 2 * sm_count) return false;
  // The portable kernel reaches half of the speed, but its CTAs share the keys of a tile.
  if (may_split && 2 * heads * tiles < sm_count) return false;
  step.spec = Specialization(kFlashAttentionSm90, arch, row, traits);
  step.blocks = static_cast<unsigned>(std::min<std::int64_t>(heads * tiles, sm_count));
  step.arguments.set_int(offsetof(AttentionParams, heads_together),
                         heads_dealt_together(heads, tiles, sm_count));
  return true;
}

}  // namespace kiln
