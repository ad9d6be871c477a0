// One kernel for each thing that the template does differently: each dtype and vector with every
// row, and each option by itself.
#include "jit/merge_states/samples.h"

#include <bit>

#include "jit/merge_states/family.h"
#include "jit/merge_states/problem.h"

namespace kiln {

std::vector<Specialization> merge_samples(int arch) {
  std::vector<MergeTraits> list;
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    MergeTraits base;
    base.input = base.output = dtype;
    base.vector = dtype == DType::f32 ? 4 : 8;
    MergeTraits elements = base;
    elements.vector = 1;
    list.insert(list.end(), {base, elements});
  }
  MergeTraits wide, narrow, sinks;
  wide.output = DType::f32;
  wide.sinks = DType::bf16;
  narrow.input = DType::f32, narrow.vector = 4;
  sinks.sinks = DType::f32, sinks.vector = 4;
  list.insert(list.end(), {wide, narrow, sinks});
  std::vector<Specialization> specs;
  for (const MergeTraits& traits : list) {
    const auto kernels = kMergeStates.kernels(std::bit_cast<Traits>(traits), arch, Kernels::all);
    specs.insert(specs.end(), kernels.begin(), kernels.end());
  }
  return specs;
}

}  // namespace kiln
