// The run-time arguments of the kernel that bounds the elements of tensors which masks read, and
// its launch arithmetic, shared by host and device.
#pragma once

namespace kiln {

constexpr int kBoundedPositions = 64;  // in a row, of which the least and the greatest are written
constexpr int kMostBoundedTensors = 4;
constexpr int kBoundElementsThreads = 128;

enum class BoundedElementType : int { i32, i64, u8, boolean };

// A tensor [entries, length].
struct BoundedTensorParams {
  const void* elements;
  long long first;                 // of the elements, the one at position 0 of entry 0
  long long entry_stride, stride;  // in elements
  int length;                      // at least 1
  int first_block;                 // of all blocks that are written, the tensor's first one
  BoundedElementType type;
  int reserved = 0;  // so that no byte of the argument block is undefined
};

struct BoundElementsParams {
  void* bounds;  // [blocks] of two ints, the least and the greatest; 8-byte aligned
  BoundedTensorParams tensors[kMostBoundedTensors];
  int count;   // of tensors
  int blocks;  // of all tensors
};
static_assert(sizeof(BoundElementsParams) % 8 == 0,
              "keep the argument block a whole number of words");

constexpr int bounded_blocks(int length) {
  return (length + kBoundedPositions - 1) / kBoundedPositions;
}

// Each warp has a block.
constexpr long long bound_elements_ctas(long long blocks) {
  constexpr int kWarps = kBoundElementsThreads / 32;
  return (blocks + kWarps - 1) / kWarps;
}

}  // namespace kiln
