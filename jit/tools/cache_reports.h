// JSON texts about the cache, which the reports share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kiln {

nlohmann::json layers_report();

// Paths may hold bytes that are not UTF-8, which become replacement characters.
std::string text_of(const nlohmann::json& report);

}  // namespace kiln
