// One kernel for each thing that the template does differently: each dtype of a cache, head dim and
// vector, and each option by itself and all of them together.
#include "jit/append_kv/samples.h"

#include <bit>

#include "jit/append_kv/family.h"
#include "jit/append_kv/problem.h"

namespace kiln {
namespace {

AppendTraits fused(DType weight, DType table, std::uint16_t rotary, bool interleaved) {
  AppendTraits traits;
  traits.query = true;
  traits.weight = weight, traits.table = table;
  traits.rotary = rotary, traits.interleaved = interleaved;
  return traits;
}

std::vector<AppendTraits> append_traits() {
  std::vector<AppendTraits> list;
  for (DType input : {DType::bf16, DType::f16}) {
    for (DType cache : {input, DType::f8_e4m3, DType::f8_e5m2, DType::i8}) {
      AppendTraits base;
      base.input = input, base.cache = cache;
      AppendTraits elements = base;
      elements.vector = 1;
      AppendTraits all = fused(input, DType::f32, 128, false);
      all.input = input, all.cache = cache;
      list.insert(list.end(), {base, elements, all});
    }
  }
  for (std::uint16_t dim : {64, 80, 96, 192, 256, 512}) {
    AppendTraits traits = fused(DType::none, DType::f32, dim, false);
    traits.head_dim = traits.head_dim_v = dim;
    list.push_back(traits);
  }
  AppendTraits query, norm, rotary, mixed, small;
  query.query = true;
  norm.weight = DType::f32;
  rotary.rotary = 128, rotary.table = DType::bf16;
  mixed = fused(DType::bf16, DType::bf16, 64, false);
  mixed.head_dim = 192, mixed.cache = DType::f8_e4m3;
  small = fused(DType::f32, DType::f32, 36, false);
  small.head_dim = small.head_dim_v = 72, small.vector = 2;
  AppendTraits partial = fused(DType::none, DType::f32, 64, false);
  AppendTraits pairs = fused(DType::f32, DType::f32, 128, true);
  AppendTraits some_pairs = fused(DType::f32, DType::bf16, 64, true);
  AppendTraits single_pairs = some_pairs, single = partial, quads = pairs;
  AppendTraits behind, behind_rotated = fused(DType::none, DType::f32, 128, true);
  behind.sequences = behind_rotated.sequences = true;
  AppendTraits behind_single = behind_rotated;
  behind_single.vector = 1, behind_single.rotary = 64, behind_single.interleaved = false;
  list.insert(list.end(), {behind, behind_rotated, behind_single});
  single_pairs.vector = single.vector = 1;
  quads.vector = 4;
  list.insert(list.end(), {query, norm, rotary, mixed, small, partial, pairs, some_pairs,
                           single_pairs, single, quads});
  return list;
}

}  // namespace

std::vector<Specialization> append_samples(int arch) {
  std::vector<Specialization> specs;
  for (const AppendTraits& traits : append_traits()) {
    const auto kernels = kAppendKv.kernels(std::bit_cast<Traits>(traits), arch, Kernels::all);
    specs.insert(specs.end(), kernels.begin(), kernels.end());
  }
  return specs;
}

}  // namespace kiln
