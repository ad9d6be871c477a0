// The argument block that all attention kernels take.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/attention/variant.cuh"

namespace kiln {

// The parameters, then the variant's 8-byte slots. They are bases rather than members because an
// empty variant must take no space.
template <class Variant>
struct AttentionArgs : AttentionParams, Variant {
  static_assert(__is_empty(Variant) || sizeof(Variant) == Variant::kBytes,
                "flash_attention: a variant may hold only Slots and VariantTensors");

  __device__ __forceinline__ const AttentionParams& params() const { return *this; }
  __device__ __forceinline__ const Variant& variant() const { return *this; }
};

}  // namespace kiln
