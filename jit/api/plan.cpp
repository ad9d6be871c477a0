#include "kiln/plan.h"

#include <array>
#include <optional>
#include <stdexcept>
#include <string>

#include "jit/api/call.h"
#include "jit/api/status.h"

namespace kiln {

struct Plan::Impl {
  runtime::Device* device = nullptr;  // null: nothing to compute
  Recipe recipe;
  RecipeKernels kernels{};
  std::size_t tensors = 0;
  std::array<std::uint8_t, CallArguments::kMaxPointers> alignments{};  // bytes, of each pointer
  std::array<bool, CallArguments::kMaxPointers> may_be_null{};         // of no element
  bool emulated = false;
};

namespace {

constexpr std::uint8_t kVectorBytes = 16;

[[noreturn]] void refuse_pointer(std::size_t i, const void* pointer, int alignment) {
  const std::string subject = "Plan::launch: pointer " + std::to_string(i);
  if (pointer == nullptr) throw std::invalid_argument(subject + " is null");
  throw std::invalid_argument(subject + " must be a multiple of " + std::to_string(alignment) +
                              " bytes, which the planned kernel relies on");
}

// What every launch of the recipe relies on, of each of the call's tensors.
void note_pointers(Plan::Impl& impl) {
  impl.may_be_null.fill(true);
  for (const Step& step : impl.recipe.steps()) {
    const CallArguments& arguments = step.arguments;
    for (std::size_t i = 0; i < arguments.pointers(); ++i) {
      const std::size_t tensor = arguments.tensor_number(i);
      const auto alignment = static_cast<std::uint8_t>(arguments.alignment(i));
      impl.tensors = std::max(impl.tensors, tensor + 1);
      impl.alignments[tensor] = std::max(impl.alignments[tensor], alignment);
      if (arguments.spans()[i].bytes != 0) impl.may_be_null[tensor] = false;
    }
  }
}

}  // namespace

Plan make_plan(const Problem& problem, runtime::Device* device, double flops) {
  auto impl = std::make_shared<Plan::Impl>();
  impl->recipe = problem.recipe;
  impl->device = device;
  if (device != nullptr) {
    impl->emulated = is_emulated(problem.device_ordinal);
    if (impl->emulated) admit_emulation(problem.op, flops, problem.recipe);
    impl->kernels = find_kernels(problem.recipe, problem.texts, *device, nullptr);
  }
  note_pointers(*impl);
  return Plan(std::move(impl));
}

std::size_t Plan::workspace_bytes() const { return impl_->recipe.workspace_bytes; }

void Plan::launch(std::span<void* const> pointers, void* stream, void* workspace) const {
  if (pointers.size() != impl_->tensors) {
    throw std::invalid_argument("Plan::launch: expected " + std::to_string(impl_->tensors) +
                                " pointers, got " + std::to_string(pointers.size()));
  }
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const bool is_missing = pointers[i] == nullptr && !impl_->may_be_null[i];
    const std::uintptr_t alignment = impl_->alignments[i];
    if (is_missing || (reinterpret_cast<std::uintptr_t>(pointers[i]) & (alignment - 1)) != 0) {
      refuse_pointer(i, pointers[i], static_cast<int>(alignment));
    }
  }
  if (!impl_->device) return;
  const bool has_workspace =
      workspace != nullptr && reinterpret_cast<std::uintptr_t>(workspace) % kVectorBytes == 0;
  if (impl_->recipe.workspace_bytes != 0 && !has_workspace) {
    throw std::invalid_argument("Plan::launch: this plan needs a workspace of " +
                                std::to_string(impl_->recipe.workspace_bytes) +
                                " bytes aligned to 16 (workspace_bytes())");
  }
  Recipe recipe = impl_->recipe;
  for (Step& step : recipe.steps()) {
    for (std::size_t i = 0; i < step.arguments.pointers(); ++i) {
      step.arguments.set_pointer(i, pointers[step.arguments.tensor_number(i)]);
    }
  }
  std::optional<EmulationScope> scope;
  if (impl_->emulated) [[unlikely]]
    scope.emplace();
  launch_steps(recipe, impl_->kernels, *impl_->device, workspace, stream);
}

Status Plan::try_launch(std::span<void* const> pointers, void* stream,
                        void* workspace) const noexcept {
  return status_of([&] { launch(pointers, stream, workspace); });
}

}  // namespace kiln
