// One kernel for each thing that the norms' templates do differently: each dtype and vector with
// every row, each option by itself, and all of them at once.
#include "jit/norm/samples.h"

#include "jit/norm/family.h"

namespace kiln {
namespace {

std::vector<NormTraits> norm_traits(NormKind kind) {
  const bool layer = kind == NormKind::layer;
  std::vector<NormTraits> list;
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    NormTraits base;
    base.kind = kind;
    base.input = base.output = base.weight = dtype;
    if (layer) base.bias = dtype;
    base.vector = dtype == DType::f32 ? 4 : 8;
    list.push_back(base);
    NormTraits residual = base;
    residual.residual = true;
    list.push_back(residual);
    NormTraits elements = residual;
    elements.vector = 1;
    list.push_back(elements);
  }
  NormTraits base = list.front();
  for (Activation activation :
       {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    NormTraits traits = base;
    traits.activation = activation;
    list.push_back(traits);
  }
  NormTraits bare = base, wide = base, narrow = base, all = base, sums = base;
  bare.weight = bare.bias = DType::none;
  wide.output = wide.weight = DType::f32;
  narrow.vector = 4;
  all.input = all.output = DType::f32;
  all.weight = DType::f32;
  sums.weight = DType::f32;
  if (layer) all.bias = wide.bias = sums.bias = DType::f32;
  sums.output = DType::f16;
  sums.residual = true;
  all.residual = true;
  all.activation = Activation::gelu;
  all.vector = 4;
  list.insert(list.end(), {bare, wide, narrow, all, sums});
  return list;
}

}  // namespace

std::vector<Specialization> norm_samples(NormKind kind, int arch) {
  const Family& family = kind == NormKind::rms ? kRmsNorm : kLayerNorm;
  std::vector<Specialization> specs;
  for (const NormTraits& traits : norm_traits(kind)) {
    const auto kernels = family.kernels(std::bit_cast<Traits>(traits), arch, Kernels::all);
    specs.insert(specs.end(), kernels.begin(), kernels.end());
  }
  return specs;
}

}  // namespace kiln
