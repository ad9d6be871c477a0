// Merging partial results as a row of families().
#pragma once

#include "jit/op/family.h"

namespace kiln {

extern const Family kMergeStates;

const Template& merge_template();

}  // namespace kiln
