// These constants say what ptxas of CUDA 12 has to be told that later versions see. Users have the
// NVRTC that came with their PyTorch; docs/performance/compilers.md has what each version makes of
// the kernels.
#pragma once

namespace kiln {

// This says whether accumulators must have a value, on every path, before a loop's first product,
// though that product replaces them. Without, ptxas before 12.9 says that other instructions define
// them (C7515), and ends each product before it starts the next.
inline constexpr bool kAccumulatorsNeedValues =
    __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 9;

// This says whether ptxas takes what follows a loop for divergent if each lane leaves the loop by
// itself.
inline constexpr bool kLanesMustLeaveTogether =
    __CUDACC_VER_MAJOR__ == 12 && (__CUDACC_VER_MINOR__ == 5 || __CUDACC_VER_MINOR__ == 6);

}  // namespace kiln
