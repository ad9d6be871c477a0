// Problem -> config -> specialization -> launch: the steps that operations, plans and explanations
// share.
#pragma once

#include "jit/engine.h"
#include "jit/problem.h"

namespace kiln {

runtime::Device& device_of(int ordinal);     // CudaError when there is none
int arch_of(const runtime::Device& device);  // index into arch_table()

// What a problem comes to on a device: the kernel, its grid and how far a tile's work is split.
struct LaunchChoice {
  Specialization spec;
  unsigned blocks = 0;
  int splits = 1;
  int whole_tiles = 0;              // as in Choice
  std::size_t workspace_bytes = 0;  // 0 unless split
  unsigned cluster = 1;             // CTAs of the grid in a cluster
  std::int64_t measured_m = 0;      // as in Choice
};
LaunchChoice choose(const AttentionProblem& problem, const runtime::Device& device, bool may_split);
// Throws std::invalid_argument when the problem's tile override names no row.
LaunchChoice choose(const GemmProblem& problem, const runtime::Device& device, bool may_split);

inline UserTexts texts_of(const AttentionProblem& problem) {
  return {problem.variant ? &problem.variant->definition() : nullptr, {}};
}
inline UserTexts texts_of(const GemmProblem& problem) { return {nullptr, problem.epilogue}; }

runtime::LaunchShape launch_shape(const LaunchChoice& choice, const LoadedKernel& kernel);

// Makes the arguments those of a split launch, with a new nonce, if the choice is one.
void set_splits(CallArguments& arguments, const LaunchChoice& choice, void* workspace);

// One launch; a driver's failure becomes CudaError.
void launch(runtime::Device& device, const LoadedKernel& kernel, const LaunchChoice& choice,
            const CallArguments& arguments, void* stream);

}  // namespace kiln
