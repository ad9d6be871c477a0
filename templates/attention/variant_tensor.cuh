// The tensors that variants read, or write as results.
#pragma once
#include "/kiln/base/table.cuh"
#include "/kiln/base/types.cuh"

namespace kiln {

// A tensor read by a variant; at() returns a float, int or bool. A stride of 0 broadcasts.
template <class T, int kRank, class Product = CompilersProduct>
struct VariantTensor {
  Slot<const T*> data;
  Slot<i64> strides[kRank];

  // As at(), of a tensor of a user's.
  template <class... Indices>
  __device__ __forceinline__ auto read(Indices... indices) const {
    static_assert(sizeof...(Indices) == kRank, "VariantTensor: give one index per dimension");
    const int places[] = {indices...};
    i64 offset = 0;
#pragma unroll
    for (int i = 0; i + 1 < kRank; ++i) offset += places[i] * strides[i].value;
    return load_constant(
        element_at<Product>(data.value + offset, places[kRank - 1], strides[kRank - 1]));
  }

  template <class... Indices>
  __device__ __forceinline__ auto at(Indices... indices) const {
    return load_constant(data.value + offset_of(indices...));
  }

  // For a hook that gives results: the host then takes the tensor for one that is written.
  template <class... Indices>
  __device__ __forceinline__ void write(T value, Indices... indices) const {
    const_cast<T*>(data.value)[offset_of(indices...)] = value;
  }

 private:
  template <class... Indices>
  __device__ __forceinline__ i64 offset_of(Indices... indices) const {
    static_assert(sizeof...(Indices) == kRank, "VariantTensor: give one index per dimension");
    i64 offset = 0;
    int dimension = 0;
    ((offset += indices * strides[dimension++].value), ...);
    return offset;
  }
};
template <class T, class Product>
struct VariantTensor<T, 0, Product> {
  Slot<const T*> data;
  __device__ __forceinline__ auto read() const { return at(); }
  __device__ __forceinline__ auto at() const { return load_constant(data.value); }
};

}  // namespace kiln
