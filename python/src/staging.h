// NumPy arrays of a call that a GPU computes: their places on the device, the way there and back.
#pragma once

#include <mutex>
#include <vector>

#include "kiln/tensor.h"
#include "runtime/cuda/host_staging.h"

namespace kiln::python {

// One call's. Holds the device's staging memory from its construction to its end, so calls on one
// device take turns. Every function lets go of the GIL where it waits. Throws CudaError.
class StagedArrays {
 public:
  // Throws Error on a thread that is inside another such call, as it would wait for itself.
  StagedArrays(const char* op, int ordinal);
  ~StagedArrays();
  StagedArrays(const StagedArrays&) = delete;
  StagedArrays& operator=(const StagedArrays&) = delete;

  // Gives a view of host memory its place on the device. An input's whole span is copied, from its
  // first element to its last; an output must be contiguous.
  void add_input(TensorView& view);
  void add_output(TensorView& view);
  void* reserve(std::size_t bytes);

  // Copies what was added before. Outputs are copied too: download() brings all of an output back,
  // and a kernel may leave some of its rows as the caller made them.
  void upload();
  void download();
  void* stream() const { return staging_->stream(); }

 private:
  runtime::HostStaging* staging_ = nullptr;
  std::unique_lock<std::mutex> lock_;
  std::vector<runtime::HostCopy> inputs_, outputs_;
};

// Waits for the stream, without the GIL. Throws CudaError.
void synchronize(int ordinal, void* stream);

std::size_t bytes_of_elements(const TensorView& view);

}  // namespace kiln::python
