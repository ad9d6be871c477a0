// Plans: an operation prepared once and launched many times.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>

#include "kiln/export.h"
#include "kiln/status.h"

namespace KILN_PUBLIC kiln {

// One call prepared: arguments checked, the kernel resident. Cheap to copy, thread-safe.
class Plan {
 public:
  struct Impl;
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  // Device memory that launch needs beside its tensors, aligned to 16 and not necessarily zeroed.
  // Of launches that may overlap each needs its own.
  std::size_t workspace_bytes() const;
  // Pointers of the tensors that were given when planning, in the order that the operation's plan_*
  // function tells, with the alignment that it tells. Shapes and strides are the planned ones.
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
