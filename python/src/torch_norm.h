// The C++ kernels of PyTorch's operators of the norms, which differ in the function that takes the
// tensors.
#pragma once

#include <utility>

#include "norm_options.h"
#include "options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {

// `Arguments` and `Signature` are the generated ones of the operator; `compute(tensors, options,
// stream)` is the operation.
template <class Signature, class Arguments, class Compute>
void compute_norm(TorchSlot* stack, std::size_t new_results, Compute&& compute) {
  const Arguments given(TorchArguments(stack), new_results == 0);
  NormOptions options;
  given.set_numbers(options);
  if (given.activation) {
    options.activation =
        norm_activation(view_of(given.activation), subject_of<Signature>(Signature::kActivation));
  }
  const DType asked = asked_dtype(given.out_dtype, subject_of<Signature>(Signature::kOutDtype));
  TorchIntake intake(Signature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  options.residual = tensors.residual().view;
  options.residual_out = tensors.residual_out().view;
  options.workspace = intake.workspace();
  TensorView& out = tensors.out().view;
  check_out_dtype(Signature::kOp, asked, out);
  TorchTensor new_out;
  if (new_results != 0) {
    out = norm_output(tensors.x().view, asked);
    new_out = intake.allocate(out);
  }
  compute(tensors, options, intake.stream());
  if (new_out) stack[0] = slot_of(std::move(new_out));
}

}  // namespace kiln::python
