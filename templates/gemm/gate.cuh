// Gated epilogues: an output column is activate(gate) * up, of two columns of b.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Where b has the two columns of output column c, out of n: c and n + c, or 2 c and 2 c + 1.
enum class Gate { none, halves, interleaved };

// Columns of b for each column of the output.
template <class Config>
inline constexpr int kGateFactor = Config::kGate == Gate::none ? 1 : 2;

// Of `column`'s gate, or of what it has alone; `n` counts the output's columns.
template <Gate kGate>
__device__ __forceinline__ int gate_column(int column) {
  return kGate == Gate::interleaved ? column * 2 : column;
}
template <Gate kGate>
__device__ __forceinline__ int up_column(int column, int n) {
  return kGate == Gate::interleaved ? column * 2 + 1 : n + column;
}

}  // namespace kiln
