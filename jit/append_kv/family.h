// Appending to a cache as a row of families().
#pragma once

#include "jit/op/family.h"

namespace kiln {

extern const Family kAppendKv;

const Template& append_template();

}  // namespace kiln
