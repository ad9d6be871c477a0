#include "jit/gemm/tuning.h"

#include <algorithm>
#include <tuple>

#include "jit/gemm/family.h"

namespace kiln {
namespace {

bool is_gemm_before(const TunedGemm& a, const TunedGemm& b) {
  return std::tie(a.key, a.m) < std::tie(b.key, b.m);
}

void read_layout(const TuningPart& entry, TunedKey& key) {
  const std::string layout = entry.text("layout");
  if (layout.size() != 2 || layout.find_first_not_of("nt") != std::string::npos) {
    entry.refuse("field 'layout' must be nn, nt, tn or tt, got '" + layout + "'");
  }
  key.major_a = layout[0] == 'n' ? Major::k : Major::mn;
  key.major_b = layout[1] == 't' ? Major::k : Major::mn;
}

TunedGemm read_gemm_entry(const TuningPart& entry, const TuningDevice& device) {
  TunedGemm tuned;
  tuned.key.device = device;
  tuned.key.input = static_cast<DType>(entry.choice("dtype", kOperandNames));
  tuned.key.output_bytes = size_of(static_cast<DType>(entry.choice("out_dtype", kOperandNames)));
  read_layout(entry, tuned.key);
  tuned.key.fast = entry.choice("precision", kPrecisionNames, "full") != 0;
  tuned.m = entry.integer("m", 1);
  tuned.key.n = entry.integer("n", 1);
  tuned.key.k = entry.integer("k", 1);
  tuned.key.batch = entry.integer_or("batch", 1, 1);
  const TuningPart config = entry.part("config");
  tuned.tile = {config.integer("block_m", 1),       config.integer("block_n", 1),
                config.integer("block_k", 1),       config.integer("stages", 1),
                config.integer_or("cluster", 0, 0), config.integer_or("splits", 0, 0)};
  return tuned;
}

std::unique_ptr<const TunedEntries> read_gemm_entries(std::span<const TuningPart> parts,
                                                      const TuningDevice& device) {
  std::vector<TunedGemm> entries;
  for (const TuningPart& part : parts) entries.push_back(read_gemm_entry(part, device));
  return std::make_unique<const GemmTuning>(std::move(entries));
}

}  // namespace

const TuningReader kGemmTuning = {.read = read_gemm_entries, .unnamed = true};

GemmTuning::GemmTuning(std::vector<TunedGemm> entries) : entries_(std::move(entries)) {
  std::stable_sort(entries_.begin(), entries_.end(), is_gemm_before);
}

const TunedGemm* GemmTuning::find(const TunedKey& key, std::int64_t m) const {
  const auto above =
      std::lower_bound(entries_.begin(), entries_.end(), TunedGemm{key, m, {}}, is_gemm_before);
  const auto serves = [&](const TunedGemm& entry) {
    return entry.key == key && tuning_bucket(entry.m) == tuning_bucket(m);
  };
  const TunedGemm* nearest = above != entries_.end() && serves(*above) ? &*above : nullptr;
  if (above == entries_.begin()) return nearest;
  const TunedGemm& below = *std::prev(above);
  if (serves(below) && (nearest == nullptr || m - below.m < nearest->m - m)) nearest = &below;
  return nearest;
}

const GemmTuning* gemm_tuning() {
  const TuningTable* table = tuning_table();
  return table == nullptr ? nullptr : static_cast<const GemmTuning*>(table->of(kGemm));
}

}  // namespace kiln
