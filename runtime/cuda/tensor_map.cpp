// Checks and encodes tensor maps for the driver.
#include "runtime/cuda/tensor_map.h"

#include <bit>
#include <stdexcept>

#include "runtime/cuda/errors.h"
#include "runtime/tensor_map_rules.h"

namespace kiln::runtime {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= 64);

CUtensorMapDataType element_of(TensorMapElement element) {
  switch (element) {
    case TensorMapElement::u8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case TensorMapElement::u16:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case TensorMapElement::u32:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case TensorMapElement::i32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case TensorMapElement::u64:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
    case TensorMapElement::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case TensorMapElement::f32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case TensorMapElement::f64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case TensorMapElement::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case TensorMapElement::tf32:
      return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  }
  throw std::invalid_argument("tensor map: unknown element type");
}

CUtensorMapSwizzle swizzle_of(TensorMapSwizzle swizzle) {
  switch (swizzle) {
    case TensorMapSwizzle::none:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case TensorMapSwizzle::b32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case TensorMapSwizzle::b64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case TensorMapSwizzle::b128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  throw std::invalid_argument("tensor map: unknown swizzle");
}

}  // namespace

TensorMap encode_tensor_map(const DriverTable& driver, const TensorMapSpec& spec) {
  check_tensor_map(spec);
  static constexpr std::array<cuuint32_t, 5> kUnitSteps{1, 1, 1, 1, 1};
  CUtensorMap map;
  check(driver,
        driver.cuTensorMapEncodeTiled(&map, element_of(spec.element), cuuint32_t(spec.rank),
                                      reinterpret_cast<void*>(spec.address), spec.dims.data(),
                                      spec.strides_bytes.data(), spec.box.data(), kUnitSteps.data(),
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(spec.swizzle),
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
  return std::bit_cast<TensorMap>(map);
}

}  // namespace kiln::runtime
