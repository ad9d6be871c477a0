// The two families behind render() and describe().
#pragma once

#include "jit/config.h"
#include "jit/render.h"

namespace kiln {

std::string render_attention(const AttentionTraits& traits, const AttentionConfig& config,
                             const UserTexts& texts);
std::string describe_attention(const AttentionTraits& traits, const AttentionConfig& config,
                               const UserTexts& texts);
std::string render_gemm(const GemmTraits& traits, const GemmConfig& config, const UserTexts& texts);
std::string describe_gemm(const GemmTraits& traits, const GemmConfig& config,
                          const UserTexts& texts);

const char* name(Activation activation);  // "none", "relu", "gelu", "gelu_tanh", "silu"
std::string layout_name(const GemmTraits& traits);  // "nt"

}  // namespace kiln
