// PTX ISA, "Tensors": tile mode, out-of-bounds elements, swizzling modes.
#include "runtime/emulator/async/tensor_box.h"

#include <algorithm>
#include <cstring>

#include "runtime/emulator/async/address.h"
#include "runtime/emulator/async/tensor_map.h"
#include "runtime/emulator/memory/memory.h"
#include "runtime/tensor_map_rules.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint64_t kMapAlign = 64;
constexpr std::uint32_t kChunk = 16;  // bytes: swizzling moves 16-byte chunks

const std::byte* map_bytes(const Warp& warp, std::uint64_t address, int lane) {
  const Launch& launch = warp.block().cluster().launch();
  std::uint64_t offset = address;
  const Space space = resolve_generic(offset);
  if (offset % kMapAlign != 0) {
    raise(Fault::misaligned,
          "the tensor map's address " + hex(address) + " must be a multiple of 64", lane);
  }
  if (space == Space::global) {
    return find_global(warp, offset, sizeof(TensorMap), /*write=*/false, lane);
  }
  const std::size_t size = launch.arguments.size();
  if (space != Space::param) {
    raise(Fault::tensor_map, "a tensor map in shared or local memory", lane);
  }
  if (size < sizeof(TensorMap) || offset > size - sizeof(TensorMap)) {
    raise(Fault::out_of_bounds, "a tensor map beyond the kernel's parameters", lane);
  }
  return launch.arguments.data() + offset;
}

// Bits of the absolute shared address that the chunk's place is XORed with.
std::uint32_t swizzled(std::uint32_t offset, std::uint32_t span) {
  return offset ^ ((offset >> 7 & (span / kChunk - 1)) * kChunk);
}

// copy(offset in shared memory, offset in the packed rows, bytes).
template <class Copy>
void for_each_chunk(const TensorBox& box, std::uint32_t offset, Copy copy) {
  if (box.swizzle == 0) {
    copy(offset, 0u, box.bytes);
    return;
  }
  for (std::uint32_t at = 0, row = offset; at < box.bytes; at += box.row_bytes, row += box.pitch) {
    for (std::uint32_t in_row = 0; in_row < box.row_bytes; in_row += kChunk) {
      copy(swizzled(row + in_row, box.swizzle), at + in_row, kChunk);
    }
  }
}

// The tf32 type rounds what it loads to nearest even, as an H200 was seen to; a NaN becomes the
// canonical one.
std::uint32_t rounded_to_tf32(std::uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffe000u;
  return (bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u;
}

// Where rows end, in elements. A store goes on to the end of the 16 bytes in which the row ends, as
// an H200 was seen to.
std::int64_t row_end(const TensorMapSpec& map, bool write) {
  const std::uint64_t element = element_bytes(map.element);
  const std::uint64_t bytes = map.dims[0] * element;
  return static_cast<std::int64_t>(write ? (bytes + kChunk - 1) / kChunk * kChunk / element
                                         : map.dims[0]);
}

// What an H200 reports as an illegal instruction; boxes without a swizzle were not tried there.
void check_swizzled_place(const std::array<std::int32_t, 5>& coordinates, int rank,
                          std::uint32_t element, bool write, int lane) {
  const auto end = coordinates.begin() + rank;
  if (write && std::any_of(coordinates.begin(), end, [](std::int32_t at) { return at < 0; })) {
    raise(Fault::tensor_map, "a swizzled store must not begin before the tensor's first element",
          lane);
  }
  if (coordinates[0] * static_cast<std::int64_t>(element) % kChunk != 0) {
    raise(Fault::tensor_map,
          "the first coordinate of a swizzled box must be a multiple of 16 bytes, not element " +
              std::to_string(coordinates[0]),
          lane);
  }
}

}  // namespace

TensorMapSpec read_tensor_map(Warp& warp, std::uint64_t address, int lane) {
  TensorMap map;
  std::memcpy(&map, map_bytes(warp, address, lane), sizeof map);
  const auto spec = decode_emulated_tensor_map(map);
  if (!spec) {
    raise(Fault::tensor_map,
          "what lies at " + hex(address) + " is no tensor map of the emulated device", lane);
  }
  try {
    check_tensor_map(*spec);
  } catch (const std::invalid_argument& error) {
    raise(Fault::tensor_map, error.what(), lane);
  }
  return *spec;
}

TensorBox locate_box(const Warp& warp, const TensorMapSpec& map,
                     const std::array<std::int32_t, 5>& coordinates, int rank, bool write,
                     int lane) {
  if (rank != map.rank) {
    raise(Fault::tensor_map,
          "a copy of " + std::to_string(rank) + " dimensions by a tensor map of " +
              std::to_string(map.rank),
          lane);
  }
  const std::uint32_t element = element_bytes(map.element);
  TensorBox box;
  box.swizzle = swizzle_span(map.swizzle);
  if (box.swizzle != 0) check_swizzled_place(coordinates, rank, element, write, lane);
  box.rounds = map.element == TensorMapElement::tf32;
  box.row_bytes = map.box[0] * element;
  box.pitch = box.swizzle != 0 ? box.swizzle : box.row_bytes;
  std::uint64_t rows = 1;
  for (std::size_t i = 1; i < static_cast<std::size_t>(rank); ++i) rows *= map.box[i];  // < 2^40
  const std::uint64_t extent = rows * box.pitch;
  if (extent > kSharedOffsetMask) {
    raise(Fault::tensor_map, "a box larger than any shared memory", lane);
  }
  box.bytes = static_cast<std::uint32_t>(rows) * box.row_bytes;
  box.extent = static_cast<std::uint32_t>(extent);
  const std::int64_t begin = coordinates[0];
  const std::int64_t first = std::max<std::int64_t>(begin, 0);
  const std::int64_t last = std::min(begin + map.box[0], row_end(map, write));
  if (first >= last) return box;
  const AddressMap& memory = *warp.block().cluster().launch().memory;
  for (std::uint32_t row = 0; row < rows; ++row) {
    // Unsigned: maps may point far before the tensor, to be brought back by a coordinate.
    std::uint64_t address = map.address + static_cast<std::uint64_t>(first) * element;
    bool inside = true;
    std::uint32_t rest = row;
    for (std::size_t i = 1; i < static_cast<std::size_t>(rank); ++i) {
      const std::int64_t at = std::int64_t{coordinates[i]} + rest % map.box[i];
      rest /= map.box[i];
      inside = inside && at >= 0 && at < static_cast<std::int64_t>(map.dims[i]);
      address += static_cast<std::uint64_t>(at) * map.strides_bytes[i - 1];
    }
    if (!inside) continue;
    const auto bytes = static_cast<std::uint32_t>(last - first) * element;
    box.rows.push_back({memory.find(address, bytes, write, lane),
                        row * box.row_bytes + static_cast<std::uint32_t>(first - begin) * element,
                        bytes});
  }
  return box;
}

void gather(const TensorBox& box, std::vector<std::byte>& linear) {
  linear.assign(box.bytes, std::byte{0});
  for (const BoxRow& row : box.rows) std::memcpy(linear.data() + row.at, row.global, row.bytes);
  if (!box.rounds) return;
  for (std::size_t at = 0; at < linear.size(); at += 4) {
    std::uint32_t bits;
    std::memcpy(&bits, linear.data() + at, 4);
    bits = rounded_to_tf32(bits);
    std::memcpy(linear.data() + at, &bits, 4);
  }
}

std::vector<SharedPart> parts_inside(const TensorBox& box, std::uint32_t offset) {
  std::uint32_t inside = 0;
  for (const BoxRow& row : box.rows) inside += row.bytes;
  // A swizzle moves chunks within their row.
  if (inside == box.bytes && box.pitch == box.row_bytes) return {{0, box.extent}};
  std::vector<SharedPart> parts;
  const auto add = [&](std::uint32_t at, std::uint32_t bytes) {
    if (!parts.empty() && parts.back().offset + parts.back().bytes == at) {
      parts.back().bytes += bytes;
    } else {
      parts.push_back({at, bytes});
    }
  };
  for (const BoxRow& row : box.rows) {
    if (box.swizzle == 0) {
      add(row.at, row.bytes);
      continue;
    }
    // Whole chunks: a swizzled store begins at a chunk and ends at one (row_end).
    const std::uint32_t begin = row.at / box.row_bytes * box.pitch + row.at % box.row_bytes;
    for (std::uint32_t at = begin; at < begin + row.bytes; at += kChunk) {
      add(swizzled(offset + at, box.swizzle) - offset, kChunk);
    }
  }
  return parts;
}

void swizzle_in(const TensorBox& box, std::byte* base, std::uint32_t offset,
                const std::byte* linear) {
  for_each_chunk(box, offset, [&](std::uint32_t to, std::uint32_t from, std::uint32_t bytes) {
    std::memcpy(base + to, linear + from, bytes);
  });
}

void swizzle_out(const TensorBox& box, const std::byte* base, std::uint32_t offset,
                 std::byte* linear) {
  for_each_chunk(box, offset, [&](std::uint32_t from, std::uint32_t to, std::uint32_t bytes) {
    std::memcpy(linear + to, base + from, bytes);
  });
}

}  // namespace kiln::runtime::emulator
