// Gated epilogues compute an output column as activate(gate) * up from two columns of b.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Output column c of n uses columns c and n + c of b (halves) or 2 c and 2 c + 1 (interleaved).
enum class Gate { none, halves, interleaved };

// The number of columns of b for each column of the output.
template <class Config>
inline constexpr int kGateFactor = Config::kGate == Gate::none ? 1 : 2;

// Return the column of b with the gate, or the only value, and the one with the partner of output
// column `column`; the output has `n` columns.
template <Gate kGate>
__device__ __forceinline__ int gate_column(int column) {
  return kGate == Gate::interleaved ? column * 2 : column;
}
template <Gate kGate>
__device__ __forceinline__ int up_column(int column, int n) {
  return kGate == Gate::interleaved ? column * 2 + 1 : n + column;
}

}  // namespace kiln
