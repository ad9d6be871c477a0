// What the noexcept twins of the operations return.
#pragma once

#include <string>

#include "kiln/export.h"

namespace KILN_PUBLIC kiln {

enum class StatusCode {
  ok,
  invalid_argument,
  type_error,
  compile_error,
  cuda_error,
  compile_disabled,
  emulator_error,
  internal
};
struct Status {
  StatusCode code = StatusCode::ok;
  std::string message;
  bool ok() const { return code == StatusCode::ok; }
};

}  // namespace KILN_PUBLIC kiln
