// The functions of kiln/c.h share these: they turn exceptions into a status and make handles.
#pragma once

#include <string>
#include <utility>

#include "jit/api/c_structs.h"
#include "jit/api/status.h"
#include "kiln/plan.h"

struct kiln_plan {
  kiln::Plan plan;
};

namespace kiln {

// Keeps the message as the thread's last error.
kiln_status status_to_c(Status status) noexcept;

template <class Call>
kiln_status run_c(Call&& call) noexcept {
  return status_to_c(status_of(std::forward<Call>(call)));
}

void check_not_null(const char* function, const char* name, const void* pointer);

// Makes a handle of what `make` returns; null if it throws.
template <class Handle, class Make>
kiln_status create(const char* function, const char* name, Handle** handle, Make&& make) noexcept {
  if (handle != nullptr) *handle = nullptr;
  return run_c([&] {
    check_not_null(function, name, handle);
    *handle = new Handle{make()};
  });
}

}  // namespace kiln
