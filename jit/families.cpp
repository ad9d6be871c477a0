// The only list of the operators. What is said of kernels in general (specs, explanations,
// prewarming, pages) walks this list.
#include <array>

#include "jit/append_kv/family.h"
#include "jit/attention/family.h"
#include "jit/gemm/family.h"
#include "jit/merge_states/family.h"
#include "jit/moe_permute/family.h"
#include "jit/moe_route/family.h"
#include "jit/norm/family.h"
#include "jit/quantize/family.h"

namespace kiln {

std::span<const Family* const> families() {
  static constexpr std::array<const Family*, 13> kFamilies = {
      &kAttention, &kPlanAttention, &kBoundElements, &kCopyKeys, &kGemm,
      &kRmsNorm,   &kLayerNorm,     &kMergeStates,   &kAppendKv, &kQuantize,
      &kMoeRoute,  &kMoePermute,    &kMoeUnpermute};
  return kFamilies;
}

}  // namespace kiln
