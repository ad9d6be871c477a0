// GEMM's specializations as source.
#pragma once

#include <string>

#include "jit/gemm/config.h"

namespace kiln {

std::string render_gemm(const Specialization& spec, const UserTexts& texts);       // portable
std::string render_gemm_sm90(const Specialization& spec, const UserTexts& texts);  // sm_90a

// What both kernels' sources have.
std::string gemm_epilogue(const GemmTraits& traits, const UserTexts& texts);  // struct Epilogue
// The type of the argument block: of these parameters, and of the epilogue's values.
std::string gemm_arguments(const std::string& params, const GemmTraits& traits,
                           const UserTexts& texts);
// Of a bias or residual that is not given: any float.
DType absent_type(const GemmTraits& traits);
std::string epilogue_constants(const GemmTraits& traits);  // kScaleA, kScaleB, kGate of a Config

}  // namespace kiln
