// Attention as a row of families().
#pragma once

#include "jit/op/family.h"

namespace kiln {

extern const Family kAttention;
extern const Template& kFlashAttention;  // mma.sync, for every arch
extern const Template& kFlashAttentionSm90;
extern const Template& kFlashAttentionVarlen;  // as the first, with lengths in device memory

// Planning, jit.plan_attention: see plan.h.
extern const Family kPlanAttention;
extern const Template& kAttentionPlanner;
extern const Template& kAttentionSharesPlanner;  // of launches of kFlashAttentionSm90

// Bounds of the elements that masks read: see element_bounds.h.
extern const Family kBoundElements;

// Copying of keys ahead of long prefills: see copy_keys.h.
extern const Family kCopyKeys;
extern const Template& kKeyCopier;

}  // namespace kiln
