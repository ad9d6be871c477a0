// What a call comes to: one to four launches in order, each with its template, grid and arguments,
// and the workspace that they share. One function runs it, for operations, plans and graphs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "jit/op/arguments.h"
#include "jit/op/kernels.h"
#include "jit/op/specialization.h"
#include "jit/op/user_texts.h"
#include "kiln/workspace.h"

namespace kiln {

struct Step {
  Specialization spec;
  unsigned blocks = 0;
  unsigned cluster = 1;          // CTAs of the grid in a cluster
  int splits = 1;                // CTAs that share a tile
  std::int64_t whole_tiles = 0;  // of a launch with splits: the first tiles, which are not split
  unsigned shared_bytes = 0;     // dynamic ones, where they are fewer than the kernel's footprint
  bool programmatic = false;     // may start before the step before it has ended
  // Is launched before the steps without it, which read what it writes.
  bool prepares = false;
  CallArguments arguments;
};

class Recipe {
 public:
  static constexpr std::size_t kMaxSteps = 4;

  Recipe() { begin(&steps_[0]); }
  Recipe(const Recipe& other) { *this = other; }
  Recipe& operator=(const Recipe& other) {  // of the steps that there are
    count_ = other.count_, workspace_bytes = other.workspace_bytes;
    for (std::size_t i = 0; i < count_; ++i) std::construct_at(&steps_[i], other.steps_[i]);
    return *this;
  }

  // Bytes of device memory, aligned to 16, that the launches need beside the call's tensors.
  std::size_t workspace_bytes = 0;

  // The step that every call has. The checks of an operator begin it with its arguments.
  Step& first() { return steps_[0]; }
  const Step& first() const { return steps_[0]; }
  Step& add();  // one more; throws std::length_error after the fourth
  std::span<Step> steps() { return {steps_, count_}; }
  std::span<const Step> steps() const { return {steps_, count_}; }

 private:
  // std::construct_at would zero the argument block, some kilobytes, before each call.
  static Step& begin(Step* step) { return *::new (step) Step; }

  // Steps that a call does not have are never written: they are kilobytes of a call's stack.
  static_assert(std::is_trivially_destructible_v<Step>);
  union {
    Step steps_[kMaxSteps];
  };
  std::size_t count_ = 1;
};

// The kernels of a recipe's steps, in their order.
using RecipeKernels = std::array<const LoadedKernel*, Recipe::kMaxSteps>;

// Finds all of them before anything is launched. Where several are missing and may not be compiled,
// the CompileDisabled names every one. Without a stream: as preload_kernel.
RecipeKernels find_kernels(const Recipe& recipe, const UserTexts& texts, runtime::Device& device,
                           void* const* stream);

// One launch. Requires: the arguments have their workspace. `next`: the step behind it, if there is
// one. Throws runtime::DeviceError.
void launch_step(const Step& step, const LoadedKernel& kernel, runtime::Device& device,
                 void* stream, const Step* next = nullptr);

// Launches the steps in order, those that prepare ahead of the others. Requires: `workspace` is
// what workspace_bytes asks for. A driver's failure becomes CudaError.
void launch_steps(Recipe& recipe, const RecipeKernels& kernels, runtime::Device& device,
                  void* workspace, void* stream);

// A whole call: kernels, then the caller's workspace if one is needed, then the launches. Throws
// std::invalid_argument for an allocator that returns null or an unaligned address.
void run_recipe(Recipe& recipe, const UserTexts& texts, runtime::Device& device,
                const Workspace& workspace, void* stream);
void emulate_recipe(Recipe& recipe, const UserTexts& texts, runtime::Device& device,
                    const Workspace& workspace);

}  // namespace kiln
