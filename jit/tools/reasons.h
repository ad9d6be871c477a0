// Why a kernel is the one that it is, in sentences for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "jit/op/family.h"

namespace kiln {

// `path_note`: why this template and no other, where the call knows it better than the templates.
nlohmann::json reasons_of(const Specialization& spec, const std::string& path_note = "");

}  // namespace kiln
