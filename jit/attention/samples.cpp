// One kernel for each thing that attention's template does differently. Properties that the table
// does not know (the sinks' dtype, attn_mask's) each appear alone, not in every combination.
#include "jit/attention/samples.h"

#include <utility>

#include "jit/attention/copy_keys.h"
#include "jit/attention/paths.h"

namespace kiln {
namespace {

// One head dim for each row of the table, with the odd ones that need padding or differ in v.
constexpr std::pair<int, int> kHeadDims[] = {
    {64, 64},   {128, 128}, {192, 128}, {256, 256}, {40, 40},   {72, 72},  {96, 96},
    {192, 192}, {8, 8},     {160, 160}, {64, 128},  {112, 112}, {512, 512}};

// A quantised cache: its dtypes, and the code that leaves the least room for registers. Rows whose
// bytes are no multiple of a vector's are mostly unaligned.
void add_quantized(Storage storage, AttentionTraits traits, std::vector<AttentionTraits>& list) {
  traits.storage = storage;
  traits.k = traits.v = storage == Storage::paged ? DType::f8_e4m3 : DType::f8_e5m2;
  traits.aligned = traits.head_dim % kAttentionVectorBytes == 0 &&
                   traits.head_dim_v % kAttentionVectorBytes == 0;
  list.push_back(traits);
  if (storage == Storage::ragged && traits.aligned) list.push_back(traits_of_copied(traits));
  traits.byte_queries = true;
  list.push_back(traits);
  AttentionTraits all = traits;
  all.mask = Mask::window;
  for (const BuiltinVariant& variant : kBuiltinVariants) set_byte(variant, all, variant.sample);
  list.push_back(all);
  all.byte_queries = false;
  if (storage == Storage::ragged && traits.aligned) list.push_back(traits_of_copied(all));
  traits.byte_queries = false;
  traits.q = traits.out = DType::f16;
  traits.k = traits.v = DType::i8;
  traits.mask = Mask::window;
  for (const BuiltinVariant& variant : kBuiltinVariants) set_byte(variant, traits, variant.sample);
  list.push_back(traits);
  if (storage != Storage::paged) {
    traits.out = DType::f8_e4m3;
    list.push_back(traits);
    return;
  }
  traits.mask = Mask::tree;
  list.push_back(traits);
  traits.mask = Mask::window;
  const DType out = traits.out;
  traits.out = DType::f8_e4m3;
  list.push_back(traits);
  traits.out = out;
  if (!traits.aligned) return;
  traits.k = traits.v = DType::f8_e4m3;
  traits.aligned = false;
  list.push_back(traits);
}

// Keys that are spread over devices: a mask alone, and beside code at every logit that does not
// need their positions, or does.
void add_spread(AttentionTraits traits, std::vector<AttentionTraits>& list) {
  traits.spread = true;
  list.push_back(traits);
  if (traits.storage != Storage::paged) return;
  traits.mask = Mask::window;
  traits.softcap = true;
  list.push_back(traits);
  traits.alibi = true;
  list.push_back(traits);
  traits.k = traits.v = DType::f8_e4m3;
  traits.aligned = traits.head_dim % kAttentionVectorBytes == 0 &&
                   traits.head_dim_v % kAttentionVectorBytes == 0;
  list.push_back(traits);
}

std::vector<AttentionTraits> attention_traits() {
  std::vector<AttentionTraits> list;
  for (const auto& [dim, dim_v] : kHeadDims) {
    AttentionTraits base;
    base.head_dim = static_cast<std::uint16_t>(dim);
    base.head_dim_v = static_cast<std::uint16_t>(dim_v);
    for (DType dtype : {DType::bf16, DType::f16}) {
      base.set_dtype(dtype);
      for (Mask mask : {Mask::none, Mask::causal, Mask::window}) {
        AttentionTraits traits = base;
        traits.mask = mask;
        list.push_back(traits);
        traits.aligned = false;
        list.push_back(traits);
      }
    }
    base.set_dtype(DType::bf16);
    base.mask = Mask::causal;
    AttentionTraits all = base;
    for (const BuiltinVariant& variant : kBuiltinVariants) {
      AttentionTraits alone = base;
      set_byte(variant, alone, variant.sample);
      set_byte(variant, all, variant.sample);
      list.push_back(alone);
    }
    all.sinks = DType::f32;
    all.mask = Mask::window;
    list.push_back(all);
    // One head dim for each of their rows.
    const bool has_storages =
        dim == 64 || dim == 72 || dim == 128 || dim == 192 || dim == 256 || dim == 512;
    for (const Storage storage : {Storage::ragged, Storage::paged}) {
      if (!has_storages || (dim == 64) != (dim_v == 64)) continue;
      AttentionTraits traits = base;
      traits.storage = all.storage = storage;
      list.push_back(traits);
      list.push_back(all);
      AttentionTraits each = all;
      for (const Mask mask : {Mask::causal_each, Mask::tree}) {
        each.mask = mask;
        list.push_back(each);
      }
      add_spread(traits, list);
      AttentionTraits quantized = storage == Storage::paged ? all : traits;
      quantized.out = DType::f8_e4m3;
      list.push_back(quantized);
      traits.aligned = false;
      traits.set_dtype(DType::f16);
      list.push_back(traits);
      add_quantized(storage, base, list);
    }
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

}  // namespace

std::vector<Specialization> attention_samples(int arch) {
  std::vector<Specialization> specs;
  for (const AttentionTraits& traits : attention_traits()) {
    const auto kernels = attention_kernels(traits, arch);
    specs.insert(specs.end(), kernels.begin(), kernels.end());
  }
  return specs;
}

}  // namespace kiln
