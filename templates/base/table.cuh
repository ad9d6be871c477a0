// Tensors that a user's expression reads: the elements as numbers, and tables of computed indices.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Loads through the cache of constants, which the compiler may move over barriers.
struct ConstantLoad {
  template <class T>
  __device__ __forceinline__ static T load(const T* address) {
    return __ldg(address);
  }
};
struct PlainLoad {
  template <class T>
  __device__ __forceinline__ static T load(const T* address) {
    return *address;
  }
};

// Returns an element as a float, int or bool.
template <class Load = ConstantLoad, class T>
__device__ __forceinline__ auto load_constant(const T* address) {
  if constexpr (is_same<T, f16> || is_same<T, bf16>) {
    return to_float(T{Load::load(reinterpret_cast<const u16*>(address))});
  } else if constexpr (is_same<T, bool>) {
    return Load::load(reinterpret_cast<const u8*>(address)) != 0;
  } else if constexpr (is_same<T, u8> || is_same<T, i64>) {
    return static_cast<int>(Load::load(address));
  } else {
    return Load::load(address);
  }
}

// How the distance of an element from the first one is computed, in bytes. The compiler widens a
// stride once ahead of a loop, and each product of 64 bits then takes it five instructions.
struct CompilersProduct {
  __device__ __forceinline__ static i64 of(int index, int bytes) { return i64{index} * bytes; }
};
// One instruction. Masks that alone read at keys are faster with it; code at every logit was not
// measured with it.
struct WideProduct {
  __device__ __forceinline__ static i64 of(int index, int bytes) {
    i64 product;
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(product) : "r"(index), "r"(bytes));
    return product;
  }
};

// Where the index-th of elements of a last dimension lies. The library refuses strides of 2^31
// bytes and more there.
template <class Product = CompilersProduct, class T>
__device__ __forceinline__ const T* element_at(const T* first, int index, Slot<i64> stride) {
  const int bytes = static_cast<int>(stride.value) * static_cast<int>(sizeof(T));
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) +
                                    Product::of(index, bytes));
}

// A tensor read at computed indices, one for each dimension. An index outside of its dimension
// stands for the nearest one inside, because expressions are also evaluated at positions that are
// hidden or padding.
template <class T, int kRank, class Load = ConstantLoad, class Product = CompilersProduct>
struct VariantTable {
  Slot<const T*> data;
  Slot<i64> strides[kRank];
  Slot<int> extents[kRank];

  template <class... Indices>
  __device__ __forceinline__ auto at(Indices... indices) const {
    static_assert(sizeof...(Indices) == kRank, "a table needs one index for each dimension");
    static_assert(((!is_same<Indices, float> && !is_same<Indices, double>) && ...),
                  "the indices of a table must be whole numbers: write int(x)");
    const int places[] = {static_cast<int>(indices)...};
    i64 offset = 0;
#pragma unroll
    for (int i = 0; i + 1 < kRank; ++i) offset += place(places[i], i) * strides[i].value;
    const int last = place(places[kRank - 1], kRank - 1);
    return load_constant<Load>(element_at<Product>(data.value + offset, last, strides[kRank - 1]));
  }
  template <class... Indices>
  __device__ __forceinline__ auto operator()(Indices... indices) const {
    return at(indices...);
  }
  template <class Index>
  __device__ __forceinline__ auto operator[](Index index) const {
    return at(index);
  }

 private:
  __device__ __forceinline__ int place(int index, int dimension) const {
    return max(min(index, extents[dimension].value - 1), 0);
  }
};

}  // namespace kiln
