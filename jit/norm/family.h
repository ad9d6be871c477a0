// The norms as rows of families().
#pragma once

#include "jit/op/family.h"

namespace kiln {

extern const Family kRmsNorm;
extern const Family kLayerNorm;

// The templates of a norm, by place: one launch, then the two launches that share rows.
enum class NormTemplate : int { whole, partial, apply };
const Template& norm_template(const Family& family, NormTemplate which);

}  // namespace kiln
