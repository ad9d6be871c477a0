// Explains in sentences why a kernel was chosen.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "jit/op/family.h"

namespace kiln {

// `path_note`: the call's own reason for the template, if it is more exact than the templates'.
nlohmann::json reasons_of(const Specialization& spec, const std::string& path_note = "");

}  // namespace kiln
