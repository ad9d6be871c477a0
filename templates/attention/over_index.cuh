// Sums and their like over an index, for what users compute of rows of tensors: a loop, as rows may
// have hundreds of elements and every logit has one. Two steps at a time: with four, a dot product
// in the logits takes 1.5 times as long to compile. No count is 0.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Joins value(0), value(1), .. value(count - 1).
template <class Value, class Join>
__device__ __forceinline__ auto join_over(int count, Value value, Join join) {
  auto result = value(0);
#pragma unroll 2
  for (int i = 1; i < count; ++i) result = join(result, value(i));
  return result;
}

template <class Value>
__device__ __forceinline__ auto sum_of(int count, Value value) {
  return join_over(count, value, [](auto a, auto b) { return a + b; });
}
// The largest one, or NaN if there is one.
template <class Value>
__device__ __forceinline__ auto max_of(int count, Value value) {
  return join_over(count, value, [](auto a, auto b) { return a != a || a > b ? a : b; });
}
template <class Value>
__device__ __forceinline__ auto min_of(int count, Value value) {
  return join_over(count, value, [](auto a, auto b) { return a != a || a < b ? a : b; });
}
template <class Value>
__device__ __forceinline__ bool any_of(int count, Value value) {
  return join_over(count, value, [](bool a, bool b) { return a | b; });
}
template <class Value>
__device__ __forceinline__ bool all_of(int count, Value value) {
  return join_over(count, value, [](bool a, bool b) { return a & b; });
}

}  // namespace kiln
