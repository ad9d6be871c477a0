// The run-time arguments of the kernel that quantises activations, and its launch arithmetic,
// shared by host and device. Each row of columns is cut into groups of `group` columns, the last of
// which may be shorter. Of each group y, after the activation, in fp32:
//   scale = max(max(|y|), 1e-4) / M, out = y / scale, rounded once
// with M, the largest number of the output's dtype, 448, 57344 or 127. A NaN counts for nothing in
// the maximum.
#pragma once

namespace kiln {

// Distances between the rows of a tensor, which lie in runs, in elements.
struct QuantizeRows {
  long long outer, inner;
};

struct QuantizeParams {
  const void* x;      // [outer, inner, columns], or twice the columns: gates first
  const int* counts;  // [outer]: rows of each run that exist; unused unless Config::kCounts
  void* out;          // [outer, inner, columns]
  void* scale;        // [outer, inner, groups], floats or UE8M0 bytes
  QuantizeRows x_rows, out_rows, scale_rows;
  long long scale_groups;   // between the scales of a row
  long long counts_stride;  // between the counts
  int rows, inner_rows;     // of all runs, and of one; each at least 1
  int columns, group;       // of out; each at least 1
  int groups;               // of a row; rows * groups is below 2^31
  int reserved;
};
static_assert(sizeof(QuantizeParams) % 8 == 0, "keep the argument block a whole number of words");

constexpr float kQuantizeFloor = 1e-4f;  // the least maximum that a group counts as having

// Threads of a CTA whose groups of `lanes` threads share a group of columns.
constexpr int quantize_threads(int lanes) { return lanes < 256 ? 256 : lanes; }

// The launch has so many CTAs for its groups of columns. The threads that share a group are `lanes`
// of a CTA, or as many of each CTA of a cluster.
constexpr long long quantize_blocks(long long groups, int lanes, int cluster) {
  const int of_block = quantize_threads(lanes) / lanes;
  return (groups + of_block - 1) / of_block * cluster;
}

// Bytes of dynamic shared memory of a CTA whose `lanes` threads keep `columns` columns: elements of
// x of `element` bytes, or two where x has gates.
constexpr long long quantize_kept_bytes(long long columns, int vector, int lanes, int element,
                                        bool gated) {
  const long long step = static_cast<long long>(lanes) * vector;
  return (columns + step - 1) / step * step * (gated ? 2 : 1) * element;
}

}  // namespace kiln
