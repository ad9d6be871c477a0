// Problem -> recipe -> launches: the steps that every operator shares. An operator's problem
// derives from Problem; its folder adds three functions that are found by the problem's type:
//
//   void resolve(SomeProblem&, const runtime::Device&, bool may_split)   fills problem.recipe
//   double flops_of(const SomeProblem&)                                  for the emulated device
//   bool empty() const, a member                                         nothing is to be written
#pragma once

#include "jit/op/device_choice.h"
#include "jit/op/emulation.h"
#include "jit/op/overlap.h"
#include "jit/op/recipe.h"
#include "runtime/device.h"

namespace kiln {

// What the problems of all operators have. Filled by the operator's checks and not returned by
// value: the argument block is some kilobytes.
struct Problem {
  const char* op = "";  // what messages call the operation
  int device_ordinal = 0;
  bool may_be_null = false;  // set before the checks by a plan or an explanation: nothing runs yet
  UserTexts texts;
  CallTensors tensors;  // views that live as long as the call that is checked or planned
  Recipe recipe;  // the checks begin its first step with the arguments; resolve() completes it

  CallArguments& arguments() { return recipe.first().arguments; }
  const CallArguments& arguments() const { return recipe.first().arguments; }

  // Adds a tensor to the call and its pointer to the arguments: CallArguments::add_pointer.
  void add_tensor(std::size_t offset, const CallTensor& tensor, int together = 1) {
    arguments().add_pointer(offset, *tensor.view, tensor.use == Use::written, together);
    tensors.add(tensor);
  }
};

// The last check of every call, once all tensors are added.
inline void check_overlaps(const Problem& problem) {
  if (written_ranges_meet(problem.arguments().spans())) [[unlikely]]
    refuse_overlaps(problem.op, problem.tensors.all(), problem.arguments().spans());
}

runtime::Device& device_of(int ordinal);     // CudaError when there is none
int arch_of(const runtime::Device& device);  // index into arch_table()

// As a grid's size. Throws std::invalid_argument above 2^31 - 1.
unsigned grid_of(long long blocks);

// Out of line: the emulated device's calls take seconds.
void emulate(Problem& problem, double flops, runtime::Device& device, const Workspace& workspace);

template <class SomeProblem>
void run(SomeProblem& problem, const Workspace& workspace, void* stream) {
  if (problem.empty()) return;  // nothing to write
  runtime::Device& device = device_of(problem.device_ordinal);
  resolve(problem, device, workspace.allocate != nullptr);
  if (is_emulated(problem.device_ordinal)) [[unlikely]] {
    return emulate(problem, flops_of(problem), device, workspace);
  }
  run_recipe(problem.recipe, problem.texts, device, workspace, stream);
}

}  // namespace kiln
