#include "jit/calls.h"
#include "jit/device_choice.h"
#include "jit/emulation.h"
#include "jit/recipe.h"
#include "kiln/kiln.h"

namespace kiln {

struct Plan::Impl {
  runtime::Device* device = nullptr;  // null: nothing to compute
  Recipe recipe;
  CallArguments arguments;
  std::size_t alignment = 1;  // of the planned tensors, bytes
  bool emulated = false;
};

namespace {

template <class Problem>
Plan make_plan(const Problem& problem, bool aligned) {
  auto impl = std::make_shared<Plan::Impl>();
  impl->arguments = problem.arguments;
  impl->alignment = aligned ? 16 : 1;
  if (!problem.empty()) {
    impl->device = &device_of(problem.device_ordinal);
    const Specialization spec = specialize(problem, *impl->device);
    impl->emulated = is_emulated(problem.device_ordinal);
    if (impl->emulated) admit_emulation(problem, spec);
    const LoadedKernel& kernel = preload_kernel(spec, texts_of(problem), *impl->device);
    impl->recipe.add({&kernel, launch_shape(problem, spec, kernel)});
  }
  return Plan(std::move(impl));
}

}  // namespace

Plan plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options) {
  AttentionProblem problem;
  check_attention(q, k, v, out, lse, options, problem);
  return make_plan(problem, problem.traits.aligned);
}

Plan plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
               const GemmOptions& options) {
  GemmProblem problem;
  check_gemm(a, b, out, options, problem);
  return make_plan(problem, problem.traits.aligned_loads || problem.traits.aligned_stores);
}

std::size_t Plan::workspace_bytes() const { return impl_->recipe.workspace_bytes; }

void Plan::launch(std::initializer_list<void*> pointers, void* stream, void* workspace) const {
  static_cast<void>(workspace);  // no recipe of today needs one: workspace_bytes() is 0
  CallArguments arguments = impl_->arguments;
  if (pointers.size() != arguments.pointers()) {
    throw std::invalid_argument("Plan::launch: expected " + std::to_string(arguments.pointers()) +
                                " pointers, got " + std::to_string(pointers.size()));
  }
  std::size_t i = 0;
  for (void* pointer : pointers) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % impl_->alignment != 0) {
      throw std::invalid_argument("Plan::launch: pointer " + std::to_string(i) +
                                  " must be aligned to 16 bytes, as it was when planned");
    }
    arguments.set_pointer(i++, pointer);
  }
  if (!impl_->device) return;
  std::optional<EmulationScope> scope;
  if (impl_->emulated) [[unlikely]]
    scope.emplace();
  for (const KernelStep& step : impl_->recipe.list()) {
    kiln::launch(*impl_->device, *step.kernel, step.shape, arguments, stream);
  }
}

}  // namespace kiln
