// The public operations: check, specialise, find the kernel, launch.
#include "jit/calls.h"
#include "jit/device_choice.h"
#include "jit/emulation.h"
#include "jit/sdpa.h"
#include "jit/status.h"
#include "kiln/kiln.h"

namespace kiln {
namespace {

// Asks the caller for the workspace of a launch whose CTAs share tiles, and points the arguments to
// it.
void take_workspace(CallArguments& arguments, const LaunchChoice& choice,
                    const Workspace& workspace) {
  if (choice.workspace_bytes == 0) return;
  void* const memory = workspace.allocate(workspace.context, choice.workspace_bytes);
  if (memory == nullptr || reinterpret_cast<std::uintptr_t>(memory) % 16 != 0) {
    throw std::invalid_argument("workspace.allocate must return " +
                                std::to_string(choice.workspace_bytes) +
                                " bytes aligned to 16; it returned " +
                                (memory == nullptr ? "null" : "an unaligned address"));
  }
  set_splits(arguments, choice, memory);
}

template <class Problem>
void emulate(Problem& problem, runtime::Device& device, const Workspace& workspace) {
  const LaunchChoice choice = choose(problem, device, workspace.allocate != nullptr);
  admit_emulation(problem, choice);
  const LoadedKernel& kernel = preload_kernel(choice.spec, texts_of(problem), device);
  take_workspace(problem.arguments, choice, workspace);
  const EmulationScope scope;
  launch(device, kernel, choice, problem.arguments, nullptr);
}

template <class Problem>
void run(Problem& problem, const Workspace& workspace, void* stream) {
  if (problem.empty()) return;  // nothing to write
  runtime::Device& device = device_of(problem.device_ordinal);
  if (is_emulated(problem.device_ordinal)) [[unlikely]]
    return emulate(problem, device, workspace);
  const LaunchChoice choice = choose(problem, device, workspace.allocate != nullptr);
  const LoadedKernel& kernel = resident_kernel(choice.spec, texts_of(problem), device, stream);
  take_workspace(problem.arguments, choice, workspace);
  launch(device, kernel, choice, problem.arguments, stream);
}

}  // namespace

void flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& out, const TensorView& lse, const AttentionOptions& options,
                     void* stream) {
  AttentionProblem problem;
  check_attention(q, k, v, out, lse, options, problem);
  run(problem, options.workspace, stream);
}

void scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                  const TensorView& value, const TensorView& attn_mask,
                                  const TensorView& out, const SdpaOptions& options, void* stream) {
  SdpaCall call = check_sdpa(query, key, value, attn_mask, out, options);
  for (int i = 0; i < call.slices; ++i) {
    AttentionProblem problem;
    problem.names = kSdpaNames;
    check_attention(call.query, call.key, call.value, call.out, {}, call.options, problem);
    run(problem, call.options.workspace, stream);
    call.advance();
  }
}

void gemm(const TensorView& a, const TensorView& b, const TensorView& out,
          const GemmOptions& options, void* stream) {
  GemmProblem problem;
  check_gemm(a, b, out, options, problem);
  run(problem, options.workspace, stream);
}

Status try_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                           const TensorView& out, const TensorView& lse,
                           const AttentionOptions& options, void* stream) noexcept {
  return status_of([&] { flash_attention(q, k, v, out, lse, options, stream); });
}

Status try_scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                        const TensorView& value, const TensorView& attn_mask,
                                        const TensorView& out, const SdpaOptions& options,
                                        void* stream) noexcept {
  return status_of(
      [&] { scaled_dot_product_attention(query, key, value, attn_mask, out, options, stream); });
}

Status try_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                const GemmOptions& options, void* stream) noexcept {
  return status_of([&] { gemm(a, b, out, options, stream); });
}

}  // namespace kiln
