// Writes the least and the greatest of each 64 neighbouring elements of up to four tensors, a warp
// for each 64. Attention's masks over intervals read them: templates/attention/element_bounds.cuh.
// The launch has bound_elements_ctas() CTAs of kBoundElementsThreads threads.
#pragma once
#include "/kiln/base/table.cuh"
#include "/kiln/bound_elements/params.h"

namespace kiln {

// As an expression reads it.
__device__ __forceinline__ int element_as_int(const BoundedTensorParams& tensor, i64 offset) {
  switch (tensor.type) {
    case BoundedElementType::i32:
      return load_constant(static_cast<const int*>(tensor.elements) + offset);
    case BoundedElementType::i64:
      return load_constant(static_cast<const i64*>(tensor.elements) + offset);
    case BoundedElementType::u8:
      return load_constant(static_cast<const u8*>(tensor.elements) + offset);
    default:
      return load_constant(static_cast<const bool*>(tensor.elements) + offset) ? 1 : 0;
  }
}

__device__ __forceinline__ void bound_elements(const BoundElementsParams& p) {
  const int block = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (block >= p.blocks) return;
  int number = 0;
  while (number + 1 < p.count && block >= p.tensors[number + 1].first_block) ++number;
  const BoundedTensorParams& tensor = p.tensors[number];
  const int blocks = bounded_blocks(tensor.length), in_tensor = block - tensor.first_block;
  const i64 entry = tensor.first + in_tensor / blocks * tensor.entry_stride;
  const int first = in_tensor % blocks * kBoundedPositions + lane;
  // Lanes behind the end read the last element again.
  const int last = tensor.length - 1;
  const int a = element_as_int(tensor, entry + min(first, last) * tensor.stride);
  const int b = element_as_int(tensor, entry + min(first + 32, last) * tensor.stride);
  const int least = __reduce_min_sync(~0u, min(a, b));
  const int greatest = __reduce_max_sync(~0u, max(a, b));
  if (lane == 0) static_cast<int2*>(p.bounds)[block] = {least, greatest};
}

}  // namespace kiln
