// Epilogues of a user's that have run-time values, or that name the extents of the output.
#pragma once
#include "/kiln/base/table.cuh"
#include "/kiln/gemm/params.h"

namespace kiln {

// A tensor of such an epilogue. Plain loads stay behind the barrier before their slab of outputs:
// those of constants are moved to before it, beside another slab's, and then the sums spill.
template <class T, int kRank>
using EpilogueTable = VariantTable<T, kRank, PlainLoad>;

// Such an epilogue derives from this, consists of Slots and EpilogueTables, and takes m and n of
// the output as its last arguments.
struct BoundEpilogue {};

template <class Epilogue>
inline constexpr bool is_bound = __is_base_of(BoundEpilogue, Epilogue);

// A launch's parameters, GemmParams or GemmSm90Params, with the epilogue's values behind them.
template <class Params, class Epilogue>
struct BoundArguments : Params {
  Epilogue epilogue;
};

__device__ __forceinline__ const GemmParams& gemm_params(const GemmParams& params) {
  return params;
}
template <class Map>
__device__ __forceinline__ const GemmParams& gemm_params(const GemmSm90Params<Map>& params) {
  return params.gemm;
}

// Returns the output of an epilogue without gates. `params` are those of the launch, in the
// argument block.
template <class Epilogue, class Params>
__device__ __forceinline__ float apply_epilogue(const Params& params, float acc, float bias,
                                                float residual, int row, int col, int batch) {
  if constexpr (is_bound<Epilogue>) {
    const Epilogue& epilogue =
        static_cast<const BoundArguments<Params, Epilogue>&>(params).epilogue;
    const GemmParams& gemm = gemm_params(params);
    return epilogue(acc, bias, residual, row, col, batch, gemm.m, gemm.n);
  } else {
    const Epilogue epilogue;
    return epilogue(acc, bias, residual, row, col, batch);
  }
}

}  // namespace kiln
