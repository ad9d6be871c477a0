// Written by scripts/signatures.py from python/operations.pyi: the operators torch.ops.kiln.* and
// their C++ kernels.
#include "python/src/torch_kernels.h"

#include "python/src/generated/torch_flash_attention.h"
#include "python/src/generated/torch_flash_attention_varlen.h"
#include "python/src/generated/torch_flash_attention_with_kvcache.h"
#include "python/src/generated/torch_plan_attention.h"
#include "python/src/generated/torch_scaled_dot_product_attention.h"
#include "python/src/generated/torch_gemm.h"
#include "python/src/generated/torch_rms_norm.h"
#include "python/src/generated/torch_layer_norm.h"
#include "python/src/generated/torch_merge_states.h"
#include "python/src/generated/torch_append_kv.h"
#include "python/src/generated/torch_quantize.h"
#include "python/src/generated/torch_moe_route.h"
#include "python/src/generated/torch_moe_permute.h"
#include "python/src/generated/torch_moe_unpermute.h"

namespace kiln::python {
namespace {

constexpr TorchOperator operators[] = {
    {"flash_attention", torch_kernel<compute_flash_attention, 1>},
    {"flash_attention_lse", torch_kernel<compute_flash_attention, 2>},
    {"flash_attention_out", torch_kernel<compute_flash_attention, 0>},
    {"flash_attention_varlen", torch_kernel<compute_flash_attention_varlen, 1>},
    {"flash_attention_varlen_lse", torch_kernel<compute_flash_attention_varlen, 2>},
    {"flash_attention_varlen_out", torch_kernel<compute_flash_attention_varlen, 0>},
    {"flash_attention_with_kvcache", torch_kernel<compute_flash_attention_with_kvcache, 1>},
    {"flash_attention_with_kvcache_lse", torch_kernel<compute_flash_attention_with_kvcache, 2>},
    {"flash_attention_with_kvcache_out", torch_kernel<compute_flash_attention_with_kvcache, 0>},
    {"plan_attention", torch_kernel<compute_plan_attention, 1>},
    {"plan_attention_out", torch_kernel<compute_plan_attention, 0>},
    {"scaled_dot_product_attention", torch_kernel<compute_scaled_dot_product_attention, 1>},
    {"gemm", torch_kernel<compute_gemm, 1>},
    {"gemm_out", torch_kernel<compute_gemm, 0>},
    {"rms_norm", torch_kernel<compute_rms_norm, 1>},
    {"rms_norm_out", torch_kernel<compute_rms_norm, 0>},
    {"layer_norm", torch_kernel<compute_layer_norm, 1>},
    {"layer_norm_out", torch_kernel<compute_layer_norm, 0>},
    {"merge_states", torch_kernel<compute_merge_states, 1>},
    {"merge_states_lse", torch_kernel<compute_merge_states, 2>},
    {"merge_states_out", torch_kernel<compute_merge_states, 0>},
    {"append_kv", torch_kernel<compute_append_kv, 0>},
    {"quantize", torch_kernel<compute_quantize, 2>},
    {"quantize_out", torch_kernel<compute_quantize, 0>},
    {"moe_route", torch_kernel<compute_moe_route, 2>},
    {"moe_route_out", torch_kernel<compute_moe_route, 0>},
    {"moe_permute", torch_kernel<compute_moe_permute, 3>},
    {"moe_permute_out", torch_kernel<compute_moe_permute, 0>},
    {"moe_unpermute", torch_kernel<compute_moe_unpermute, 1>},
    {"moe_unpermute_out", torch_kernel<compute_moe_unpermute, 0>},
};

}  // namespace

std::span<const TorchOperator> torch_operators() { return operators; }

}  // namespace kiln::python
