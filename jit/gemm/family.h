// GEMM as a row of families().
#pragma once

#include "jit/op/family.h"

namespace kiln {

extern const Family kGemm;
extern const Template& kGemmPortable;  // mma.sync, for every arch
extern const Template& kGemmSm90;      // wgmma and tensor maps, for sm_90a

}  // namespace kiln
