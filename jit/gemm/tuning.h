// GEMM's entries of the measured table, docs/tuning.md: which tile was the fastest for a problem. A
// call asks them before the cost model.
#pragma once

#include <compare>
#include <vector>

#include "jit/gemm/config.h"
#include "jit/op/tuning.h"

namespace kiln {

// An entry serves a problem with the same key and an M near its own.
struct TunedKey {
  TuningDevice device = {};
  DType input = DType::bf16;
  int output_bytes = 2;  // of an element
  Major major_a = Major::k, major_b = Major::k;
  bool fast = false;
  std::int64_t batch = 1, n = 0, k = 0;

  auto operator<=>(const TunedKey&) const = default;
};

struct TunedGemm {
  TunedKey key;
  std::int64_t m = 0;
  GemmTile tile;
};

class GemmTuning : public TunedEntries {
 public:
  explicit GemmTuning(std::vector<TunedGemm> entries);

  // The entry measured at this M; else at the nearest M of those that round up to the same power of
  // two, of two as near the larger; else null. Allocates nothing.
  const TunedGemm* find(const TunedKey& key, std::int64_t m) const;

 private:
  std::vector<TunedGemm> entries_;  // by key and M
};

extern const TuningReader kGemmTuning;

// Returns GEMM's entries of the process's table, null when it has none; see tuning_table().
const GemmTuning* gemm_tuning();

}  // namespace kiln
