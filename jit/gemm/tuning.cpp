#include "jit/gemm/tuning.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <mutex>
#include <tuple>

#include "jit/op/log.h"
#include "jit/op/process.h"

namespace kiln {
namespace {

// Until the first question: the settings are read then. Never destroyed, like the other tables,
// because threads may ask while the process exits.
const GemmTuning& kUnread = *new GemmTuning("", {});
std::atomic<const GemmTuning*> g_tuning{&kUnread};

bool is_before(const TunedGemm& a, const TunedGemm& b) {
  return std::tie(a.key, a.m) < std::tie(b.key, b.m);
}

std::uint64_t bucket(std::int64_t m) { return std::bit_ceil(static_cast<std::uint64_t>(m)); }

// Tables that calls may still be reading, a few in the life of a process.
const GemmTuning* keep(GemmTuning tuning) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<const GemmTuning>>;
  const std::lock_guard lock(mutex);
  return kept.emplace_back(std::make_unique<const GemmTuning>(std::move(tuning))).get();
}

// Threads that ask first together all read; no lock is held while one logs.
const GemmTuning* read_environment() {
  const GemmTuning* table = nullptr;
  std::string problem;
  if (const std::string& path = process_tuning(); !path.empty()) {
    try {
      table = keep(read_gemm_tuning(path));
    } catch (const std::invalid_argument& error) {
      problem = std::string("KILN_TUNING is ignored: ") + error.what();
    }
  }
  const GemmTuning* expected = &kUnread;
  if (!g_tuning.compare_exchange_strong(expected, table, std::memory_order_acq_rel)) {
    return expected;
  }
  if (!problem.empty()) log(LogLevel::warning, problem);
  return table;
}

}  // namespace

GemmTuning::GemmTuning(std::string path, std::vector<TunedGemm> entries)
    : path_(std::move(path)), entries_(std::move(entries)) {
  std::stable_sort(entries_.begin(), entries_.end(), is_before);
}

const TunedGemm* GemmTuning::find(const TunedKey& key, std::int64_t m) const {
  const auto above =
      std::lower_bound(entries_.begin(), entries_.end(), TunedGemm{key, m, {}}, is_before);
  const auto serves = [&](const TunedGemm& entry) {
    return entry.key == key && bucket(entry.m) == bucket(m);
  };
  const TunedGemm* nearest = above != entries_.end() && serves(*above) ? &*above : nullptr;
  if (above == entries_.begin()) return nearest;
  const TunedGemm& below = *std::prev(above);
  if (serves(below) && (nearest == nullptr || m - below.m < nearest->m - m)) nearest = &below;
  return nearest;
}

const GemmTuning* gemm_tuning() {
  const GemmTuning* table = g_tuning.load(std::memory_order_acquire);
  return table == &kUnread ? read_environment() : table;
}

std::string set_tuning(const std::string& path) {
  const GemmTuning* next = path.empty() ? nullptr : keep(read_gemm_tuning(path));
  gemm_tuning();  // what the environment names is the previous one
  const GemmTuning* previous = g_tuning.exchange(next, std::memory_order_acq_rel);
  return previous == nullptr ? "" : previous->path();
}

}  // namespace kiln
