#include "kiln/plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "jit/api/call.h"
#include "jit/api/status.h"

namespace kiln {

struct Plan::Impl {
  // A tensor of the call, to tell from new pointers whether two of them overlap.
  struct Tensor {
    std::string name;
    TensorView view;
    Use use;
  };

  const char* op = "";                // of a constant
  runtime::Device* device = nullptr;  // null: nothing to compute
  Recipe recipe;
  RecipeKernels kernels{};
  std::vector<Tensor> tensors;
  std::vector<runtime::MemorySpan> reaches;  // of the tensors, counted from their pointers
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

// Notes what every launch of the recipe relies on, for each of the call's tensors.
void note_pointers(Plan::Impl& impl) {
  impl.may_be_null.fill(true);
  impl.alignments.fill(1);  // of a tensor that no step reads: that of an empty problem, say
  for (const Step& step : impl.recipe.steps()) {
    const CallArguments& arguments = step.arguments;
    for (std::size_t i = 0; i < arguments.pointers(); ++i) {
      const std::size_t tensor = arguments.tensor_number(i);
      const auto alignment = static_cast<std::uint8_t>(arguments.alignment(i));
      impl.alignments[tensor] = std::max(impl.alignments[tensor], alignment);
      if (arguments.spans()[i].bytes != 0) impl.may_be_null[tensor] = false;
    }
  }
}

void note_tensors(const CallTensors& tensors, Plan::Impl& impl) {
  for (const auto& [name, view, use] : tensors.all()) {
    impl.tensors.push_back({name, *view, use});
    runtime::MemorySpan reach = CallArguments::span_of(*view, use == Use::written);
    reach.address -= reinterpret_cast<std::uint64_t>(view->data);
    impl.reaches.push_back(reach);
  }
}

// The call's check for overlaps, with the pointers of a launch.
void check_overlaps(const Plan::Impl& impl, std::span<void* const> pointers) {
  std::array<runtime::MemorySpan, CallArguments::kMaxPointers> spans;
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    spans[i] = impl.reaches[i];
    spans[i].address += reinterpret_cast<std::uint64_t>(pointers[i]);
  }
  const std::span planned(spans.data(), pointers.size());
  if (!written_ranges_meet(planned)) [[likely]]
    return;
  std::array<TensorView, CallArguments::kMaxPointers> views;
  CallTensors tensors;
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    views[i] = impl.tensors[i].view;
    views[i].data = pointers[i];
    tensors.add({impl.tensors[i].name.c_str(), &views[i], impl.tensors[i].use});
  }
  refuse_overlaps(impl.op, tensors.all(), planned);
}

}  // namespace

Plan make_plan(const Problem& problem, runtime::Device* device, double flops) {
  auto impl = std::make_shared<Plan::Impl>();
  impl->op = problem.op;
  impl->recipe = problem.recipe;
  impl->device = device;
  if (device != nullptr) {
    impl->emulated = is_emulated(problem.device_ordinal);
    if (impl->emulated) admit_emulation(problem.op, flops, problem.recipe);
    impl->kernels = find_kernels(problem.recipe, problem.texts, *device, nullptr);
  }
  note_pointers(*impl);
  note_tensors(problem.tensors, *impl);
  return Plan(std::move(impl));
}

std::size_t Plan::workspace_bytes() const { return impl_->recipe.workspace_bytes; }

void Plan::launch(std::span<void* const> pointers, void* stream, void* workspace) const {
  if (pointers.size() != impl_->tensors.size()) {
    throw std::invalid_argument("Plan::launch: expected " + std::to_string(impl_->tensors.size()) +
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
  check_overlaps(*impl_, pointers);
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
