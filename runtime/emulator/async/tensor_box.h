// Boxes of tensors as the tensor memory accelerator moves them: which rows of global memory, where
// in shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/device.h"
#include "runtime/emulator/async/bulk.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {

// A run of elements that lie inside the tensor.
struct BoxRow {
  std::byte* global = nullptr;
  std::uint32_t at = 0;  // in the box with rows packed
  std::uint32_t bytes = 0;
};

struct TensorBox {
  std::uint32_t bytes = 0;   // the full box: what the mbarrier counts
  std::uint32_t extent = 0;  // in shared memory, where swizzled rows are as far apart as the span
  std::uint32_t row_bytes = 0, pitch = 0;
  std::uint32_t swizzle = 0;  // span in bytes, 0 = none
  bool rounds = false;        // loads of the tf32 type
  std::vector<BoxRow> rows;
};

// Reads the map at a generic address; Fault::tensor_map when it is none.
TensorMapSpec read_tensor_map(Warp& warp, std::uint64_t address, int lane);

// The box at `coordinates`, of which the map has `rank`. Every element inside the tensor must lie
// in an allocation.
TensorBox locate_box(const Warp& warp, const TensorMapSpec& map,
                     const std::array<std::int32_t, 5>& coordinates, int rank, bool write,
                     int lane);

// Takes a box out of global memory into `linear`, rows packed, zeros outside of the tensor.
void gather(const TensorBox& box, std::vector<std::byte>& linear);

// The parts that a store of the box reads of shared memory, where the box begins at `offset`: it
// does not read what lies outside of the tensor, which is dropped, nor the gaps between swizzled
// rows.
std::vector<SharedPart> parts_inside(const TensorBox& box, std::uint32_t offset);

// Rows packed, to and from shared memory; `base` is offset 0 of the block's memory.
void swizzle_in(const TensorBox& box, std::byte* base, std::uint32_t offset,
                const std::byte* linear);
void swizzle_out(const TensorBox& box, const std::byte* base, std::uint32_t offset,
                 std::byte* linear);

}  // namespace kiln::runtime::emulator
