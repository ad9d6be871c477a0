// The tensors of one operator call, read through PyTorch's C functions: without the GIL.
#pragma once

#include <span>

#include "kiln/kiln.h"
#include "placement.h"
#include "torch_abi.h"

namespace kiln::python {

// One tensor argument; `tensor` is borrowed and null where it was not given.
struct TorchArgument {
  const char* name;
  TorchTensorHandle tensor;
  bool written = false;
  TensorView view{};
};

// What TensorIntake is to Python's tensors, for tensors of PyTorch alone.
class TorchIntake {
 public:
  explicit TorchIntake(const char* op) : op_(op), place_(op) {}
  TorchIntake(const TorchIntake&) = delete;
  TorchIntake& operator=(const TorchIntake&) = delete;

  // Fills the views of the given arguments; throws as TensorIntake::read does.
  void read(std::span<TorchArgument> arguments);
  // A new tensor of the view's shape and dtype on the call's device; sets the view's data. Throws
  // Python's MemoryError, with what PyTorch says where it can be asked.
  TorchTensor allocate(TensorView& view);
  // From PyTorch's allocator, which orders its reuse after the call's work on the stream.
  Workspace workspace();

  void* stream() const { return stream_; }

 private:
  void read_one(TorchArgument& argument);

  const char* op_;
  Placement place_;
  void* stream_ = nullptr;
  TorchTensor workspace_;
};

}  // namespace kiln::python
