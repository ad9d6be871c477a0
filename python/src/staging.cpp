#include "staging.h"

#include <pybind11/pybind11.h>

#include <string>

#include "jit/op/arguments.h"
#include "jit/op/device_errors.h"
#include "kiln/error.h"
#include "runtime/cuda/cuda_device.h"

namespace kiln::python {
namespace {

// Whether this thread is inside a call with staged arrays, which runs Python code of others: a
// listener of kiln.on_compile, say.
thread_local bool t_stages = false;

// Runs `call` without the GIL, which is let go before any lock is taken.
template <class Call>
auto unlocked(Call&& call) {
  const pybind11::gil_scoped_release release;
  try {
    return call();
  } catch (const runtime::NoDeviceError& error) {
    throw CudaError(error.what());
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

}  // namespace

std::size_t bytes_of_elements(const TensorView& view) {
  std::int64_t bytes = size_of(view.dtype);
  for (int i = 0; i < view.rank; ++i) bytes *= view.shape[i];
  return static_cast<std::size_t>(bytes);
}

StagedArrays::StagedArrays(const char* op, int ordinal) {
  if (t_stages) {
    throw Error(std::string(op) +
                ": is called with NumPy arrays from inside another call with NumPy arrays, which "
                "holds the memory that they are copied through; pass tensors on the GPU, or call "
                "it once the other call has returned");
  }
  unlocked([&] {
    staging_ = &runtime::host_staging(ordinal);
    lock_ = staging_->begin();
  });
  t_stages = true;
}

StagedArrays::~StagedArrays() { t_stages = false; }

void StagedArrays::add_input(TensorView& view) {
  const runtime::MemorySpan span = CallArguments::span_of(view, false);
  auto* const host = reinterpret_cast<std::byte*>(span.address);
  const std::ptrdiff_t before = static_cast<std::byte*>(view.data) - host;
  for (const runtime::HostCopy& known : inputs_) {  // k that is v, say
    if (known.host != host || known.bytes != span.bytes) continue;
    view.data = known.device + before;
    return;
  }
  inputs_.push_back({host, static_cast<std::byte*>(reserve(span.bytes)), span.bytes});
  view.data = inputs_.back().device + before;
}

void StagedArrays::add_output(TensorView& view) {
  const std::size_t bytes = bytes_of_elements(view);
  auto* const device = static_cast<std::byte*>(reserve(bytes));
  outputs_.push_back({static_cast<std::byte*>(view.data), device, bytes});
  view.data = device;
}

void* StagedArrays::reserve(std::size_t bytes) {
  return unlocked([&] { return staging_->reserve(bytes); });
}

void StagedArrays::upload() {
  unlocked([&] {
    staging_->upload(inputs_);
    if (!outputs_.empty()) staging_->upload(outputs_);
  });
}

void synchronize(int ordinal, void* stream) {
  unlocked([&] { runtime::cuda_device(ordinal).synchronize(stream); });
}

void StagedArrays::download() {
  unlocked([&] { staging_->download(outputs_); });
}

}  // namespace kiln::python
