#include "jit/op/tuning.h"

#include <atomic>
#include <bit>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "jit/op/log.h"
#include "jit/op/process.h"
#include "jit/op/whole_file.h"
#include "kiln/control.h"

namespace kiln {
namespace {

// This address stands for "not asked yet", because null is no table: the first question reads the
// settings.
const char kUnread = 0;
std::atomic<const void*> g_tuning{&kUnread};

// Tables that calls may still be reading. A file that has not changed since it was read gives the
// same table, so that a process that changes between a few files does not keep more and more.
const TuningTable* read_table(const std::string& path) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<const TuningTable>>;
  std::optional<std::string> text = read_whole_file(path);
  if (!text) throw std::invalid_argument("tuning table " + path + ": the file cannot be read");
  const std::lock_guard lock(mutex);
  for (const auto& table : kept) {
    if (table->path() == path && table->text() == *text) return table.get();
  }
  return kept.emplace_back(std::make_unique<const TuningTable>(path, *std::move(text))).get();
}

// Threads that ask first together all read; no lock is held while one logs.
const TuningTable* read_environment() {
  const TuningTable* table = nullptr;
  std::string problem;
  if (const std::string& path = process_tuning(); !path.empty()) {
    try {
      table = read_table(path);
    } catch (const std::invalid_argument& error) {
      problem = std::string("KILN_TUNING is ignored: ") + error.what();
    }
  }
  const void* expected = &kUnread;
  if (!g_tuning.compare_exchange_strong(expected, table, std::memory_order_acq_rel)) {
    return static_cast<const TuningTable*>(expected);
  }
  if (!problem.empty()) log(LogLevel::warning, problem);
  return table;
}

}  // namespace

const TuningTable* tuning_table() {
  const void* table = g_tuning.load(std::memory_order_acquire);
  return table == &kUnread ? read_environment() : static_cast<const TuningTable*>(table);
}

std::string set_tuning(const std::string& path) {
  const TuningTable* next = path.empty() ? nullptr : read_table(path);
  tuning_table();  // what the environment names is the previous one
  const auto* previous =
      static_cast<const TuningTable*>(g_tuning.exchange(next, std::memory_order_acq_rel));
  return previous == nullptr ? "" : previous->path();
}

std::int64_t tuning_bucket(std::int64_t length) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(length)));
}

}  // namespace kiln
