// The only list of the operators. What is said of kernels in general (specs, explanations,
// prewarming, pages) walks this list.
#include <array>

#include "jit/append_kv/family.h"
#include "jit/attention/family.h"
#include "jit/gemm/family.h"
#include "jit/merge_states/family.h"
#include "jit/norm/family.h"

namespace kiln {

std::span<const Family* const> families() {
  static constexpr std::array<const Family*, 7> kFamilies = {
      &kAttention, &kPlanAttention, &kGemm, &kRmsNorm, &kLayerNorm, &kMergeStates, &kAppendKv};
  return kFamilies;
}

}  // namespace kiln
