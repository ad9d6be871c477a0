// Checks a tensor map's geometry, since the driver's answer to any mistake is the same
// CUDA_ERROR_INVALID_VALUE, and encodes it.
#include "runtime/cuda/tensor_map.h"

#include <bit>
#include <stdexcept>
#include <string>

#include "runtime/cuda/errors.h"

namespace kiln::runtime {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= 64);

constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 32;
constexpr std::uint64_t kMaxStride = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxBox = 256;
constexpr std::uint32_t kUnit = 16;  // bytes: the grain of addresses, pitches and inner boxes

struct Element {
  CUtensorMapDataType type;
  std::uint32_t bytes;
};

Element element_of(TensorMapElement element) {
  switch (element) {
    case TensorMapElement::u8:
      return {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1};
    case TensorMapElement::u16:
      return {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2};
    case TensorMapElement::u32:
      return {CU_TENSOR_MAP_DATA_TYPE_UINT32, 4};
    case TensorMapElement::i32:
      return {CU_TENSOR_MAP_DATA_TYPE_INT32, 4};
    case TensorMapElement::u64:
      return {CU_TENSOR_MAP_DATA_TYPE_UINT64, 8};
    case TensorMapElement::f16:
      return {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2};
    case TensorMapElement::f32:
      return {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4};
    case TensorMapElement::f64:
      return {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8};
    case TensorMapElement::bf16:
      return {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2};
    case TensorMapElement::tf32:
      return {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 4};
  }
  throw std::invalid_argument("tensor map: unknown element type");
}

struct Swizzle {
  CUtensorMapSwizzle mode;
  std::uint32_t span;  // the inner box may not be wider, in bytes; 0 = no limit
};

Swizzle swizzle_of(TensorMapSwizzle swizzle) {
  switch (swizzle) {
    case TensorMapSwizzle::none:
      return {CU_TENSOR_MAP_SWIZZLE_NONE, 0};
    case TensorMapSwizzle::b32:
      return {CU_TENSOR_MAP_SWIZZLE_32B, 32};
    case TensorMapSwizzle::b64:
      return {CU_TENSOR_MAP_SWIZZLE_64B, 64};
    case TensorMapSwizzle::b128:
      return {CU_TENSOR_MAP_SWIZZLE_128B, 128};
  }
  throw std::invalid_argument("tensor map: unknown swizzle");
}

void require(bool holds, const std::string& expected, std::uint64_t got) {
  if (!holds)
    throw std::invalid_argument("tensor map: " + expected + ", got " + std::to_string(got));
}

}  // namespace

void check_tensor_map(const TensorMapSpec& spec) {
  require(spec.rank >= 1 && spec.rank <= 5, "rank must be 1 to 5", std::uint64_t(spec.rank));
  require(spec.address != 0 && spec.address % kUnit == 0,
          "the address must be a multiple of 16 and not null", spec.address);
  for (int i = 0; i < spec.rank; ++i) {
    const std::string dimension = "[" + std::to_string(i) + "]";
    require(spec.dims[i] >= 1 && spec.dims[i] <= kMaxDim, "dims" + dimension + " must be 1 to 2^32",
            spec.dims[i]);
    require(spec.box[i] >= 1 && spec.box[i] <= kMaxBox, "box" + dimension + " must be 1 to 256",
            spec.box[i]);
    if (i + 1 == spec.rank) break;
    const std::uint64_t stride = spec.strides_bytes[i];
    require(stride % kUnit == 0 && stride < kMaxStride,
            "strides_bytes" + dimension + " must be a multiple of 16 below 2^40", stride);
  }
  const std::uint64_t inner = std::uint64_t{spec.box[0]} * element_of(spec.element).bytes;
  const std::uint32_t span = swizzle_of(spec.swizzle).span;
  require(inner % kUnit == 0, "box[0] must cover a multiple of 16 bytes", inner);
  require(span == 0 || inner <= span,
          "box[0] must cover at most the swizzle's " + std::to_string(span) + " bytes", inner);
}

TensorMap encode_tensor_map(const DriverTable& driver, const TensorMapSpec& spec) {
  check_tensor_map(spec);
  static constexpr std::array<cuuint32_t, 5> kUnitSteps{1, 1, 1, 1, 1};
  CUtensorMap map;
  check(driver,
        driver.cuTensorMapEncodeTiled(&map, element_of(spec.element).type, cuuint32_t(spec.rank),
                                      reinterpret_cast<void*>(spec.address), spec.dims.data(),
                                      spec.strides_bytes.data(), spec.box.data(), kUnitSteps.data(),
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(spec.swizzle).mode,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
  return std::bit_cast<TensorMap>(map);
}

}  // namespace kiln::runtime
