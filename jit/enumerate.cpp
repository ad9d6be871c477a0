// The closed list of built-in kernels: what the compile tests walk. Properties that a table does
// not know (sinks' dtype, attn_mask's, bias, activation) each appear alone, not in every
// combination.
#include <algorithm>

#include "jit/config.h"

namespace kiln {
namespace {

// One head dim for each row of the table, with the odd ones that need padding or differ in v.
constexpr std::pair<int, int> kHeadDims[] = {{64, 64}, {128, 128}, {192, 128}, {256, 256},
                                             {40, 40}, {72, 72},   {96, 96},   {192, 192},
                                             {8, 8},   {160, 160}, {64, 128},  {112, 112}};

std::vector<AttentionTraits> attention_traits() {
  std::vector<AttentionTraits> list;
  for (const auto& [dim, dim_v] : kHeadDims) {
    AttentionTraits base;
    base.head_dim = static_cast<std::uint16_t>(dim);
    base.head_dim_v = static_cast<std::uint16_t>(dim_v);
    for (DType dtype : {DType::bf16, DType::f16}) {
      base.dtype = dtype;
      for (Mask mask : {Mask::none, Mask::causal, Mask::window}) {
        AttentionTraits traits = base;
        traits.mask = mask;
        list.push_back(traits);
        traits.aligned = false;
        list.push_back(traits);
      }
    }
    base.dtype = DType::bf16;
    base.mask = Mask::causal;
    AttentionTraits softcap = base, alibi = base, sinks = base, all = base;
    softcap.softcap = true;
    alibi.alibi = true;
    sinks.sinks = DType::bf16;
    all.softcap = all.alibi = true;
    all.sinks = DType::f32;
    all.mask = Mask::window;
    for (const AttentionTraits& traits : {softcap, alibi, sinks, all}) list.push_back(traits);
    if (dim != dim_v || dim % 64 != 0) continue;
    base.mask = Mask::none;
    // By pairs, and a key at a time in what leaves the fewest registers.
    for (const auto& [mask, plain] :
         {std::pair{DType::boolean, true}, {DType::boolean, false}, {DType::bf16, true}}) {
      base.attn_mask = mask;
      base.mask_pairs = base.aligned = plain;
      list.push_back(base);
    }
  }
  return list;
}

// Each granularity of each operand's scale, with and without what else the epilogue reads.
std::vector<GemmTraits> scaled(const GemmTraits& base) {
  GemmTraits vectors = base, mixed = base;
  vectors.scale_a = vectors.scale_b = Scale::vector;
  mixed.scale_a = Scale::tensor;
  mixed.scale_b = Scale::vector;
  mixed.bias = DType::f32;
  mixed.residual = DType::bf16;
  mixed.stores = Access::elements;
  GemmTraits rows = vectors;
  rows.scale_b = Scale::tensor;
  rows.stores = Access::boxes;
  return {vectors, mixed, rows};
}

std::vector<GemmTraits> f8_traits() {
  GemmTraits base;
  base.input = DType::f8_e4m3;
  std::vector<GemmTraits> list = scaled(base);
  GemmTraits fast = base, wide = base;
  fast.fast = true;
  wide.input = DType::f8_e5m2;
  wide.input_b = DType::f8_e4m3;
  wide.output = DType::f32;
  list.push_back(base);
  list.push_back(fast);
  list.push_back(wide);
  wide.input = DType::f8_e4m3, wide.input_b = DType::f8_e5m2;
  wide.fast = true;
  list.push_back(wide);
  return list;
}

// Each place of gates and partners, in the layouts that read b in different ways.
std::vector<GemmTraits> gated_traits() {
  GemmTraits base;
  base.activation = Activation::swiglu;
  base.gate = Gate::halves;
  GemmTraits rows = base, all = base, wide = base, bytes = base, bits = base;
  rows.major_b = Major::mn;
  rows.bias = rows.residual = DType::bf16;
  all.activation = Activation::geglu;
  all.gate = Gate::interleaved;
  all.bias = DType::f32;
  all.residual = DType::bf16;
  all.scale_a = all.scale_b = Scale::vector;
  GemmTraits odd = all;
  odd.major_b = Major::mn;
  odd.loads = odd.stores = Access::elements;
  wide.input = DType::f16, wide.output = DType::f32;
  wide.activation = Activation::geglu_tanh;
  bytes.input = DType::f8_e4m3;
  bytes.scale_a = bytes.scale_b = Scale::vector;
  bits.input = bits.output = DType::f32;
  bits.bias = DType::f32;
  return {base, rows, all, odd, wide, bytes, bits};
}

// Inputs and outputs in every layout; then, in NT, each epilogue and the unaligned forms.
std::vector<GemmTraits> gemm_traits() {
  std::vector<GemmTraits> list;
  for (DType input : {DType::bf16, DType::f16, DType::f32}) {
    GemmTraits base;
    base.input = base.output = input;
    for (Major a : {Major::k, Major::mn}) {
      for (Major b : {Major::k, Major::mn}) {
        GemmTraits traits = base;
        traits.major_a = a;
        traits.major_b = b;
        list.push_back(traits);
        traits.loads = traits.stores = Access::elements;
        list.push_back(traits);
      }
    }
    for (Activation activation :
         {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
      GemmTraits traits = base;
      traits.activation = activation;
      traits.bias = input;
      list.push_back(traits);
    }
    GemmTraits residual = base, widened = base;
    residual.residual = input;
    widened.output = input == DType::f32 ? DType::bf16 : DType::f32;
    list.push_back(residual);
    list.push_back(widened);
    if (input == DType::f16) {
      GemmTraits half = base;
      half.accumulator = Accumulator::f16;
      list.push_back(half);
    }
    if (input == DType::bf16) {
      for (const GemmTraits& traits : scaled(base)) list.push_back(traits);
    }
  }
  for (const GemmTraits& traits : f8_traits()) list.push_back(traits);
  for (const GemmTraits& traits : gated_traits()) list.push_back(traits);
  return list;
}

// Rows of sm_90a are many, and their epilogues one code for all inputs: activations appear with
// bf16, and of these two.
bool is_listed(const GemmTraits& traits, int row) {
  if (!gemm_configs()[static_cast<std::size_t>(row)].is_sm90()) return true;
  if (traits.activation == Activation::none || traits.gate != Gate::none) return true;
  return traits.input == DType::bf16 &&
         (traits.activation == Activation::gelu || traits.activation == Activation::silu);
}

}  // namespace

std::vector<Specialization> enumerate_specializations(int arch) {
  std::vector<Specialization> specs;
  for (const AttentionTraits& traits : attention_traits()) {
    for (int row : attention_rows(traits, arch)) specs.emplace_back(arch, row, traits);
  }
  for (const GemmTraits& traits : gemm_traits()) {
    for (int row : all_gemm_rows(traits, arch)) {
      if (is_listed(traits, row)) specs.push_back(gemm_specialization(arch, row, traits));
    }
  }
  return specs;
}

}  // namespace kiln
