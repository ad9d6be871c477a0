#include "staging.h"

#include <pybind11/pybind11.h>

#include "jit/device_errors.h"
#include "kiln/error.h"
#include "runtime/cuda/cuda_device.h"

namespace kiln::python {
namespace {

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

std::int64_t element_count(const TensorView& view) {
  std::int64_t count = 1;
  for (int i = 0; i < view.rank; ++i) count *= view.shape[i];
  return count;
}

ElementSpan element_span(const TensorView& view) {
  if (element_count(view) == 0) return {};
  std::int64_t first = 0, last = 0;
  for (int i = 0; i < view.rank; ++i) {
    (view.strides[i] < 0 ? first : last) += (view.shape[i] - 1) * view.strides[i];
  }
  return {-first, last - first + 1};
}

StagedArrays::StagedArrays(int ordinal) {
  unlocked([&] {
    staging_ = &runtime::host_staging(ordinal);
    lock_ = staging_->begin();
  });
}

void StagedArrays::add_input(TensorView& view) {
  const ElementSpan span = element_span(view);
  const std::int64_t size = size_of(view.dtype);
  const auto bytes = static_cast<std::size_t>(span.count * size);
  auto* const host = static_cast<std::byte*>(view.data) - span.before * size;
  for (const runtime::HostCopy& known : inputs_) {  // k that is v, say
    if (known.host != host || known.bytes != bytes) continue;
    view.data = known.device + span.before * size;
    return;
  }
  inputs_.push_back({host, static_cast<std::byte*>(reserve(bytes)), bytes});
  view.data = inputs_.back().device + span.before * size;
}

void StagedArrays::add_output(TensorView& view) {
  const auto bytes = static_cast<std::size_t>(element_count(view) * size_of(view.dtype));
  auto* const device = static_cast<std::byte*>(reserve(bytes));
  outputs_.push_back({static_cast<std::byte*>(view.data), device, bytes});
  view.data = device;
}

void* StagedArrays::reserve(std::size_t bytes) {
  return unlocked([&] { return staging_->reserve(bytes); });
}

void StagedArrays::upload() {
  unlocked([&] { staging_->upload(inputs_); });
}

void synchronize(int ordinal, void* stream) {
  unlocked([&] { runtime::cuda_device(ordinal).synchronize(stream); });
}

void StagedArrays::download() {
  unlocked([&] { staging_->download(outputs_); });
}

}  // namespace kiln::python
