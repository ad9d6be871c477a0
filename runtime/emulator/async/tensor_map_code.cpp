// Words of a map: magic, address, type and rank and swizzle, 5 dimensions, 4 pitches, 2 + 2 + 1
// boxes, checksum. A CUtensorMap of the driver, or any other garbage, fails the checksum.
#include "runtime/emulator/async/tensor_map.h"
#include "runtime/tensor_map_rules.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint64_t kMagic = 0x4b69'6c6e'5465'6e73u;  // "KilnTens"
constexpr std::size_t kDims = 3, kStrides = 8, kBoxes = 12, kChecksum = 15;

std::uint64_t checksum(const TensorMap& map) {
  std::uint64_t sum = 0xcbf2'9ce4'8422'2325u;
  for (std::size_t i = 0; i < kChecksum; ++i) {
    sum = (sum ^ map.words[i]) * 0x9e37'79b9'7f4a'7c15u;
    sum ^= sum >> 32;
  }
  return sum;
}

}  // namespace

TensorMap pack_emulated_tensor_map(const TensorMapSpec& spec) {
  TensorMap map;
  map.words[0] = kMagic;
  map.words[1] = spec.address;
  map.words[2] = static_cast<std::uint64_t>(spec.element) |
                 static_cast<std::uint64_t>(spec.rank) << 8 |
                 static_cast<std::uint64_t>(spec.swizzle) << 16;
  for (std::size_t i = 0; i < 5; ++i) map.words[kDims + i] = spec.dims[i];
  for (std::size_t i = 0; i < 4; ++i) map.words[kStrides + i] = spec.strides_bytes[i];
  for (std::size_t i = 0; i < 5; ++i) {
    map.words[kBoxes + i / 2] |= std::uint64_t{spec.box[i]} << (i % 2 * 32);
  }
  map.words[kChecksum] = checksum(map);
  return map;
}

TensorMap encode_emulated_tensor_map(const TensorMapSpec& spec) {
  check_tensor_map(spec);
  return pack_emulated_tensor_map(spec);
}

std::optional<TensorMapSpec> decode_emulated_tensor_map(const TensorMap& map) {
  if (map.words[0] != kMagic || map.words[kChecksum] != checksum(map)) return std::nullopt;
  TensorMapSpec spec;
  spec.address = map.words[1];
  spec.element = static_cast<TensorMapElement>(map.words[2] & 0xff);
  spec.rank = static_cast<int>(map.words[2] >> 8 & 0xff);
  spec.swizzle = static_cast<TensorMapSwizzle>(map.words[2] >> 16 & 0xff);
  for (std::size_t i = 0; i < 5; ++i) spec.dims[i] = map.words[kDims + i];
  for (std::size_t i = 0; i < 4; ++i) spec.strides_bytes[i] = map.words[kStrides + i];
  for (std::size_t i = 0; i < 5; ++i) {
    spec.box[i] = static_cast<std::uint32_t>(map.words[kBoxes + i / 2] >> (i % 2 * 32));
  }
  return spec;
}

}  // namespace kiln::runtime::emulator
