// One kernel for each thing that GEMM's templates do differently: inputs and outputs in every
// layout, then each epilogue, granularity of scales and gate by itself.
#include "jit/gemm/samples.h"

#include "jit/gemm/config.h"

namespace kiln {
namespace {

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

// Each granularity of scales of blocks, plain and with all that the epilogue reads.
std::vector<GemmTraits> block_scaled() {
  GemmTraits blocks;
  blocks.input = DType::f8_e4m3;
  blocks.scale_a = Scale::groups, blocks.scale_b = Scale::blocks;
  GemmTraits columns = blocks;
  columns.scale_b = Scale::groups;
  columns.output = DType::f32;
  columns.bias = DType::f32, columns.residual = DType::bf16;
  columns.stores = Access::elements;
  GemmTraits bytes = blocks;
  bytes.scale_dtype = DType::f8_e8m0;
  return {blocks, columns, bytes};
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

// Outputs of 8 bits: vectors and elements, sums of each kind, gates. An e5m2 differs from an e4m3
// in one instruction alone.
std::vector<GemmTraits> byte_traits() {
  GemmTraits floats, whole, bytes, gated;
  floats.output = DType::f8_e4m3;
  floats.bias = DType::bf16;
  whole.output = DType::i8;
  whole.stores = Access::elements;
  bytes.input = bytes.output = DType::f8_e4m3;
  bytes.scale_b = Scale::vector;
  gated.output = DType::i8;
  gated.activation = Activation::swiglu;
  gated.gate = Gate::interleaved;
  return {floats, whole, bytes, gated};
}

// Rows in groups, by both numbers, with what reads beside them.
std::vector<GemmTraits> grouped_traits() {
  GemmTraits offsets, counts, blocks;
  offsets.grouping = Grouping::offsets;
  counts.grouping = Grouping::counts;
  counts.activation = Activation::swiglu, counts.gate = Gate::halves;
  counts.bias = DType::bf16;
  blocks.grouping = Grouping::offsets;
  blocks.input = DType::f8_e4m3;
  blocks.scale_a = Scale::groups, blocks.scale_b = Scale::blocks;
  return {offsets, counts, blocks};
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
  for (const GemmTraits& traits : block_scaled()) list.push_back(traits);
  for (const GemmTraits& traits : gated_traits()) list.push_back(traits);
  for (const GemmTraits& traits : byte_traits()) list.push_back(traits);
  for (const GemmTraits& traits : grouped_traits()) list.push_back(traits);
  return list;
}

// Rows of sm_90a are many, and their epilogues one code for all inputs: activations appear with
// bf16, and of these two.
bool is_listed(const GemmTraits& traits, GemmRow row) {
  if (!row.is_sm90()) return true;
  // UE8M0 scales differ from floats in their loader alone: three warps and whole K, one and parts.
  if (traits.scale_dtype != DType::none) {
    const GemmSm90Config& config = row.sm90();
    return config.block_m == 256 || (config.block_m == 16 && config.splits);
  }
  if (traits.activation == Activation::none || traits.gate != Gate::none) return true;
  return traits.input == DType::bf16 &&
         (traits.activation == Activation::gelu || traits.activation == Activation::silu);
}

}  // namespace

std::vector<Specialization> gemm_samples(int arch) {
  std::vector<Specialization> specs;
  for (const GemmTraits& traits : gemm_traits()) {
    for (const GemmRow row : all_gemm_rows(traits, arch)) {
      if (is_listed(traits, row)) specs.push_back(gemm_specialization(arch, row, traits));
    }
  }
  return specs;
}

}  // namespace kiln
