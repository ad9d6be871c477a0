#include "jit/calls.h"
#include "jit/device_choice.h"
#include "jit/emulation.h"
#include "jit/recipe.h"
#include "jit/status.h"
#include "kiln/kiln.h"

namespace kiln {

struct Plan::Impl {
  runtime::Device* device = nullptr;  // null: nothing to compute
  LaunchChoice choice;
  Recipe recipe;
  CallArguments arguments;
  std::array<std::uint8_t, CallArguments::kMaxPointers> alignments{};  // bytes, of each pointer
  bool emulated = false;
};

namespace {

constexpr std::uint8_t kVectorBytes = 16;

// What the kernel was specialised for; of an empty problem, which has none, what it would be.
AttentionTraits baked_traits(const AttentionProblem& problem, const LaunchChoice& choice) {
  return problem.empty() ? problem.traits : choice.spec.attention();
}
GemmTraits baked_traits(const GemmProblem& problem, const LaunchChoice& choice) {
  return problem.empty() ? problem.traits : choice.spec.gemm();
}

// Whether the kernel relies on whole vectors or boxes at pointer i of `pointers`, in the order of
// the checks.
bool needs_vectors(const AttentionTraits& traits, std::size_t i, std::size_t /*pointers*/) {
  return i < 4 && traits.aligned;  // q, k, v, out
}
bool needs_vectors(const GemmTraits& traits, std::size_t i, std::size_t pointers) {
  if (i < 2) return traits.loads != Access::elements;    // a, b
  if (i == 2) return traits.stores != Access::elements;  // out
  // Of the scales, which come last, only those of columns are read by vectors.
  const std::size_t scales =
      pointers - (traits.scale_a != Scale::none) - (traits.scale_b != Scale::none);
  const bool is_read_by_vectors =
      i < scales || (traits.scale_b == Scale::vector && i + 1 == pointers);
  return is_read_by_vectors && traits.stores == Access::vectors;
}

template <class Problem>
Plan make_plan(const Problem& problem) {
  auto impl = std::make_shared<Plan::Impl>();
  impl->arguments = problem.arguments;
  if (!problem.empty()) {
    impl->device = &device_of(problem.device_ordinal);
    impl->choice = choose(problem, *impl->device, /*may_split=*/true);
    impl->emulated = is_emulated(problem.device_ordinal);
    if (impl->emulated) admit_emulation(problem, impl->choice);
    const LoadedKernel& kernel =
        preload_kernel(impl->choice.spec, texts_of(problem), *impl->device);
    impl->recipe.add({&kernel, impl->choice});
    impl->recipe.workspace_bytes = impl->choice.workspace_bytes;
  }
  const auto traits = baked_traits(problem, impl->choice);
  const std::size_t pointers = impl->arguments.pointers();
  for (std::size_t i = 0; i < pointers; ++i) {
    impl->alignments[i] = needs_vectors(traits, i, pointers)
                              ? kVectorBytes
                              : static_cast<std::uint8_t>(impl->arguments.alignment(i));
  }
  return Plan(std::move(impl));
}

[[noreturn]] void refuse_pointer(std::size_t i, const void* pointer, int alignment) {
  const std::string subject = "Plan::launch: pointer " + std::to_string(i);
  if (pointer == nullptr) throw std::invalid_argument(subject + " is null");
  throw std::invalid_argument(subject + " must be a multiple of " + std::to_string(alignment) +
                              " bytes, which the planned kernel relies on");
}

}  // namespace

Plan plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options) {
  AttentionProblem problem;
  problem.may_be_null = true;
  check_attention(q, k, v, out, lse, options, problem);
  return make_plan(problem);
}

Plan plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
               const GemmOptions& options) {
  GemmProblem problem;
  problem.may_be_null = true;
  check_gemm(a, b, out, options, problem);
  return make_plan(problem);
}

Status try_plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                const TensorView& out, const TensorView& lse,
                                const AttentionOptions& options,
                                std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_flash_attention(q, k, v, out, lse, options); });
}

Status try_plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                     const GemmOptions& options, std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_gemm(a, b, out, options); });
}

std::size_t Plan::workspace_bytes() const { return impl_->recipe.workspace_bytes; }

void Plan::launch(std::span<void* const> pointers, void* stream, void* workspace) const {
  CallArguments arguments = impl_->arguments;
  if (pointers.size() != arguments.pointers()) {
    throw std::invalid_argument("Plan::launch: expected " + std::to_string(arguments.pointers()) +
                                " pointers, got " + std::to_string(pointers.size()));
  }
  std::size_t i = 0;
  for (void* pointer : pointers) {
    const bool is_missing = pointer == nullptr && arguments.spans()[i].bytes != 0;
    const std::uintptr_t alignment = impl_->alignments[i];
    if (is_missing || (reinterpret_cast<std::uintptr_t>(pointer) & (alignment - 1)) != 0) {
      refuse_pointer(i, pointer, static_cast<int>(alignment));
    }
    arguments.set_pointer(i++, pointer);
  }
  if (!impl_->device) return;
  const bool has_workspace =
      workspace != nullptr && reinterpret_cast<std::uintptr_t>(workspace) % kVectorBytes == 0;
  if (impl_->recipe.workspace_bytes != 0 && !has_workspace) {
    throw std::invalid_argument("Plan::launch: this plan needs a workspace of " +
                                std::to_string(impl_->recipe.workspace_bytes) +
                                " bytes aligned to 16 (workspace_bytes())");
  }
  set_splits(arguments, impl_->choice, workspace);
  std::optional<EmulationScope> scope;
  if (impl_->emulated) [[unlikely]]
    scope.emplace();
  for (const KernelStep& step : impl_->recipe.list()) {
    kiln::launch(*impl_->device, *step.kernel, step.choice, arguments, stream);
  }
}

Status Plan::try_launch(std::span<void* const> pointers, void* stream,
                        void* workspace) const noexcept {
  return status_of([&] { launch(pointers, stream, workspace); });
}

}  // namespace kiln
