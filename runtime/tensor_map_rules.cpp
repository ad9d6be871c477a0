// CUDA driver API, cuTensorMapEncodeTiled: the driver's answer to any mistake is the same
// CUDA_ERROR_INVALID_VALUE, hence the sentences.
#include "runtime/tensor_map_rules.h"

#include <stdexcept>
#include <string>

namespace kiln::runtime {
namespace {

constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 32;
constexpr std::uint64_t kMaxStride = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxBox = 256;
constexpr std::uint32_t kUnit = 16;  // bytes: the grain of addresses, pitches and inner boxes

void require(bool holds, const std::string& expected, std::uint64_t got) {
  if (!holds)
    throw std::invalid_argument("tensor map: " + expected + ", got " + std::to_string(got));
}

}  // namespace

std::uint32_t element_bytes(TensorMapElement element) {
  switch (element) {
    case TensorMapElement::u8:
      return 1;
    case TensorMapElement::u16:
    case TensorMapElement::f16:
    case TensorMapElement::bf16:
      return 2;
    case TensorMapElement::u32:
    case TensorMapElement::i32:
    case TensorMapElement::f32:
    case TensorMapElement::tf32:
      return 4;
    case TensorMapElement::u64:
    case TensorMapElement::f64:
      return 8;
  }
  throw std::invalid_argument("tensor map: unknown element type");
}

std::uint32_t swizzle_span(TensorMapSwizzle swizzle) {
  switch (swizzle) {
    case TensorMapSwizzle::none:
      return 0;
    case TensorMapSwizzle::b32:
      return 32;
    case TensorMapSwizzle::b64:
      return 64;
    case TensorMapSwizzle::b128:
      return 128;
  }
  throw std::invalid_argument("tensor map: unknown swizzle");
}

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
  const std::uint64_t inner = std::uint64_t{spec.box[0]} * element_bytes(spec.element);
  const std::uint32_t span = swizzle_span(spec.swizzle);
  require(inner % kUnit == 0, "box[0] must cover a multiple of 16 bytes", inner);
  require(span == 0 || inner <= span,
          "box[0] must cover at most the swizzle's " + std::to_string(span) + " bytes", inner);
}

}  // namespace kiln::runtime
