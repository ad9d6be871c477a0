// The operators torch.ops.kiln.* as PyTorch calls them from C++: without the GIL, without Python.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>

#include "torch_abi.h"
#include "torch_tensors.h"

namespace kiln::python {

void register_torch(pybind11::module_& module);

struct TorchOperator {
  const char* name;
  TorchKernel* kernel;
};
// In generated/torch_operators.cpp.
std::span<const TorchOperator> torch_operators();

// A result as it is left on the stack.
inline TorchSlot slot_of(TorchTensor tensor) {
  return reinterpret_cast<TorchSlot>(tensor.release());
}

// Runs a call whose results are new tensors, left on the stack, or were given.
template <class Tensors, class Out, class Lse, class Run>
void compute_results(Tensors& tensors, TorchIntake& intake, TorchSlot* stack,
                     std::size_t new_results, Out&& out_shape, Lse&& lse_shape, Run&& run) {
  TorchTensor new_out, new_lse;
  if (new_results >= 1) {
    tensors.out().view = out_shape();
    new_out = intake.allocate(tensors.out().view);
  }
  if (new_results >= 2) {
    tensors.lse().view = lse_shape();
    new_lse = intake.allocate(tensors.lse().view);
  }
  run();
  if (new_out) stack[0] = slot_of(std::move(new_out));
  if (new_lse) stack[1] = slot_of(std::move(new_lse));
}

// Throws what PyTorch turns into the Python error that the C entry raises for `error`, which is the
// exception handled now.
[[noreturn]] void rethrow_to_torch(const std::exception& error);

// What PyTorch calls, of a function that takes the stack and the number of new results.
template <auto compute, std::size_t new_results>
void torch_kernel(TorchSlot* stack, std::uint64_t, std::uint64_t) {
  try {
    compute(stack, new_results);
  } catch (const std::exception& error) {
    rethrow_to_torch(error);
  }
}

}  // namespace kiln::python
