// JSON of the cache, shared by the reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kiln {

nlohmann::json layers_report();

// Paths may hold bytes that are no UTF-8; a report with a replacement character beats none.
std::string text_of(const nlohmann::json& report);

}  // namespace kiln
