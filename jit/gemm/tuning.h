// The measured table of GEMM tiles, docs/tuning.md: which was the fastest for a problem on a
// device. A call asks it before the cost model; KILN_TUNING or set_tuning (kiln/control.h) names
// its file.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "jit/gemm/config.h"

namespace kiln {

// What an entry is found by, beside M. A file's device is here as its arch and multiprocessors: the
// same name means the same two.
struct TunedKey {
  int arch = 0;  // index into arch_table()
  int sm_count = 0;
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

// Never changes once made, so that any thread may look things up without a lock.
class GemmTuning {
 public:
  GemmTuning(std::string path, std::vector<TunedGemm> entries);

  // The entry measured at this M; else at the nearest M of those that round up to the same power of
  // two, of two as near the larger; else null. Allocates nothing.
  const TunedGemm* find(const TunedKey& key, std::int64_t m) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<TunedGemm> entries_;  // by key and M
};

// Throws std::invalid_argument naming the file, and the entry and field, that are not sound.
GemmTuning read_gemm_tuning(const std::string& path);

// The process's table, null when there is none. Never freed, and another object after every
// set_tuning: what was remembered under one address stays true.
const GemmTuning* gemm_tuning();

}  // namespace kiln
