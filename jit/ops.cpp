// The public operations: check, specialise, find the kernel, launch.
#include "jit/calls.h"
#include "jit/device_choice.h"
#include "jit/emulation.h"
#include "jit/status.h"
#include "kiln/kiln.h"

namespace kiln {
namespace {

template <class Problem>
void emulate(const Problem& problem, runtime::Device& device) {
  const Specialization spec = specialize(problem, device);
  admit_emulation(problem, spec);
  const LoadedKernel& kernel = preload_kernel(spec, texts_of(problem), device);
  const EmulationScope scope;
  launch(device, kernel, launch_shape(problem, spec, kernel), problem.arguments, nullptr);
}

template <class Problem>
void run(const Problem& problem, void* stream) {
  if (problem.empty()) return;  // nothing to write
  runtime::Device& device = device_of(problem.device_ordinal);
  if (is_emulated(problem.device_ordinal)) [[unlikely]]
    return emulate(problem, device);
  const Specialization spec = specialize(problem, device);
  const LoadedKernel& kernel = resident_kernel(spec, texts_of(problem), device, stream);
  launch(device, kernel, launch_shape(problem, spec, kernel), problem.arguments, stream);
}

}  // namespace

void flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& out, const TensorView& lse, const AttentionOptions& options,
                     void* stream) {
  AttentionProblem problem;
  check_attention(q, k, v, out, lse, options, problem);
  run(problem, stream);
}

void gemm(const TensorView& a, const TensorView& b, const TensorView& out,
          const GemmOptions& options, void* stream) {
  GemmProblem problem;
  check_gemm(a, b, out, options, problem);
  run(problem, stream);
}

Status try_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                           const TensorView& out, const TensorView& lse,
                           const AttentionOptions& options, void* stream) noexcept {
  return status_of([&] { flash_attention(q, k, v, out, lse, options, stream); });
}

Status try_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                const GemmOptions& options, void* stream) noexcept {
  return status_of([&] { gemm(a, b, out, options, stream); });
}

}  // namespace kiln
