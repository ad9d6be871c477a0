// Quantising activations as a row of families().
#pragma once

#include "jit/op/family.h"

namespace kiln {

extern const Family kQuantize;

const Template& quantize_template();

}  // namespace kiln
