// What a specialization resolves to: one to four launches, in order, and a workspace.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "jit/calls.h"

namespace kiln {

struct KernelStep {
  const LoadedKernel* kernel = nullptr;
  LaunchChoice choice;
};

struct Recipe {
  std::array<KernelStep, 4> steps;
  std::size_t count = 0;
  std::size_t workspace_bytes = 0;

  void add(const KernelStep& step) { steps[count++] = step; }
  std::span<const KernelStep> list() const { return {steps.data(), count}; }
};

}  // namespace kiln
