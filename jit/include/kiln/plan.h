// Plan: an operation that is prepared once and launched many times.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>

#include "kiln/export.h"
#include "kiln/status.h"

namespace KILN_PUBLIC kiln {

// A prepared call: its arguments are checked and its kernel is loaded. It is cheap to copy and
// thread-safe.
class Plan {
 public:
  struct Impl;
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  // How much device memory a launch needs besides its tensors. It must be aligned to 16 bytes and
  // need not be zeroed. Launches that may overlap need one workspace each.
  std::size_t workspace_bytes() const;
  // Takes the pointers of the tensors that were given to the plan function, in the order and with
  // the alignment that its comment says. Shapes and strides are the planned ones.
  // Results must not overlap other tensors, as in a call of the operation.
  void launch(std::span<void* const> pointers, void* stream = nullptr,
              void* workspace = nullptr) const;
  void launch(std::initializer_list<void*> pointers, void* stream = nullptr,
              void* workspace = nullptr) const {
    launch(std::span(pointers.begin(), pointers.size()), stream, workspace);
  }
  Status try_launch(std::span<void* const> pointers, void* stream = nullptr,
                    void* workspace = nullptr) const noexcept;
  Status try_launch(std::initializer_list<void*> pointers, void* stream = nullptr,
                    void* workspace = nullptr) const noexcept {
    return try_launch(std::span(pointers.begin(), pointers.size()), stream, workspace);
  }

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace KILN_PUBLIC kiln
