// Choosing experts as a row of families().
#pragma once

#include "jit/op/family.h"

namespace kiln {

extern const Family kMoeRoute;

const Template& route_template();

}  // namespace kiln
