#include "jit/op/recipe.h"

#include <atomic>
#include <random>
#include <stdexcept>
#include <string>

#include "jit/op/device_errors.h"
#include "jit/op/emulation.h"
#include "jit/op/family.h"
#include "kiln/error.h"

namespace kiln {
namespace {

// Never 0, and never again in this process: what an old launch left in a workspace is told apart.
std::uint64_t new_nonce() {
  static std::atomic<std::uint64_t> next{std::uint64_t{std::random_device{}()} << 32 | 1};
  const std::uint64_t nonce = next.fetch_add(1, std::memory_order_relaxed);
  return nonce != 0 ? nonce : new_nonce();
}

// The kernels of a recipe with more than one step. Inlined, its strings would cost every call a
// frame.
[[gnu::noinline]] RecipeKernels find_several(const Recipe& recipe, const UserTexts& texts,
                                             runtime::Device& device, void* const* stream) {
  const auto steps = recipe.steps();
  std::array<const Specialization*, Recipe::kMaxSteps> wanted{};
  for (std::size_t i = 0; i < steps.size(); ++i) wanted[i] = &steps[i].spec;
  std::array<KernelOrFailure, Recipe::kMaxSteps> found{};
  find_together(std::span(wanted).first(steps.size()), texts, device, stream, found);
  RecipeKernels kernels{};
  std::string messages, specs;
  int missing_count = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    kernels[i] = found[i].kernel;
    if (!found[i].failure) continue;
    try {
      std::rethrow_exception(found[i].failure);
    } catch (const CompileDisabled& missing) {
      ++missing_count;
      messages += (messages.empty() ? "" : "; ") + std::string(missing.what());
      specs += (specs.empty() ? "" : ", ") + missing.spec();
    }
  }
  if (missing_count == 0) return kernels;
  throw CompileDisabled(messages, missing_count == 1 ? specs : "[" + specs + "]");
}

[[noreturn]] void refuse_workspace(std::size_t bytes, const void* memory) {
  throw std::invalid_argument("workspace.allocate must return " + std::to_string(bytes) +
                              " bytes aligned to 16; it returned " +
                              (memory == nullptr ? "null" : "an unaligned address"));
}

// The caller's memory for the launches, null where they need none.
void* take_workspace(const Recipe& recipe, const Workspace& workspace) {
  if (recipe.workspace_bytes == 0) return nullptr;
  void* const memory = workspace.allocate(workspace.context, recipe.workspace_bytes);
  if (memory == nullptr || reinterpret_cast<std::uintptr_t>(memory) % 16 != 0) {
    refuse_workspace(recipe.workspace_bytes, memory);
  }
  return memory;
}

}  // namespace

Step& Recipe::add() {
  if (count_ == kMaxSteps) {
    throw std::length_error("a recipe has at most 4 launches; this is a fault of Kiln");
  }
  return begin(&steps_[count_++]);
}

RecipeKernels find_kernels(const Recipe& recipe, const UserTexts& texts, runtime::Device& device,
                           void* const* stream) {
  if (recipe.steps().size() != 1) return find_several(recipe, texts, device, stream);
  const Specialization& spec = recipe.first().spec;
  return {stream != nullptr ? &resident_kernel(spec, texts, device, *stream)
                            : &preload_kernel(spec, texts, device)};
}

void launch_step(const Step& step, const LoadedKernel& kernel, runtime::Device& device,
                 void* stream, const Step* next) {
  runtime::LaunchShape shape;
  shape.grid[0] = step.blocks;
  shape.block[0] = kernel.threads;
  shape.cluster[0] = step.cluster;
  shape.dynamic_shared_bytes =
      step.shared_bytes != 0 ? step.shared_bytes : kernel.dynamic_shared_bytes;
  shape.programmatic = step.programmatic;
  shape.precedes_programmatic = next != nullptr && next->programmatic;
  if (const auto pack = step.spec.kernel().pack) {
    ParameterBlock block;
    device.launch(*kernel.kernel, shape, stream, pack(step.arguments, step.spec, device, block),
                  step.arguments.spans());
  } else {
    device.launch(*kernel.kernel, shape, stream, step.arguments.bytes(), step.arguments.spans());
  }
}

void launch_steps(Recipe& recipe, const RecipeKernels& kernels, runtime::Device& device,
                  void* workspace, void* stream) {
  const auto steps = recipe.steps();
  try {
    const auto launch = [&](std::size_t i) {
      Step& step = steps[i];
      if (step.arguments.wants_workspace()) step.arguments.set_workspace(workspace, new_nonce());
      launch_step(step, *kernels[i], device, stream,
                  i + 1 < steps.size() ? &steps[i + 1] : nullptr);
    };
    for (std::size_t i = 1; i < steps.size(); ++i) {
      if (steps[i].prepares) launch(i);
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!steps[i].prepares) launch(i);
    }
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

void run_recipe(Recipe& recipe, const UserTexts& texts, runtime::Device& device,
                const Workspace& workspace, void* stream) {
  const RecipeKernels kernels = find_kernels(recipe, texts, device, &stream);
  launch_steps(recipe, kernels, device, take_workspace(recipe, workspace), stream);
}

void emulate_recipe(Recipe& recipe, const UserTexts& texts, runtime::Device& device,
                    const Workspace& workspace) {
  const RecipeKernels kernels = find_kernels(recipe, texts, device, nullptr);
  void* const memory = take_workspace(recipe, workspace);
  const EmulationScope scope;
  launch_steps(recipe, kernels, device, memory, nullptr);
}

}  // namespace kiln
