// Problem -> config -> specialization -> launch: the steps that operations, plans and explanations
// share.
#pragma once

#include "jit/engine.h"
#include "jit/problem.h"

namespace kiln {

runtime::Device& device_of(int ordinal);     // CudaError when there is none
int arch_of(const runtime::Device& device);  // index into arch_table()

Specialization specialize(const AttentionProblem& problem, const runtime::Device& device);
// Throws std::invalid_argument when the problem's tile override names no row.
Specialization specialize(const GemmProblem& problem, const runtime::Device& device);

inline UserTexts texts_of(const AttentionProblem& problem) {
  return {problem.variant ? &problem.variant->definition() : nullptr, {}};
}
inline UserTexts texts_of(const GemmProblem& problem) { return {nullptr, problem.epilogue}; }

runtime::LaunchShape launch_shape(const AttentionProblem& problem, const Specialization& spec,
                                  const LoadedKernel& kernel);
runtime::LaunchShape launch_shape(const GemmProblem& problem, const Specialization& spec,
                                  const LoadedKernel& kernel);

// One launch; a driver's failure becomes CudaError.
void launch(runtime::Device& device, const LoadedKernel& kernel, const runtime::LaunchShape& shape,
            const CallArguments& arguments, void* stream);

}  // namespace kiln
