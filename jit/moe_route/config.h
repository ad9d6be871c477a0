// The closed table of the kernels that choose experts, and the pure function that picks a row. A
// row's reason stands beside it in table.cpp.
#pragma once

#include <span>
#include <string_view>

namespace kiln {

struct RouteConfig {
  int experts;  // at most
  std::string_view reason;
};

std::span<const RouteConfig> route_configs();

// Requires: not more experts than the last row has.
int choose_route(int experts);

}  // namespace kiln
