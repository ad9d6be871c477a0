// The launches of a call that sorts rows by experts, as the rows of a table.
#pragma once

#include <span>
#include <string_view>

namespace kiln {

struct LaunchConfig {
  int launch;  // 1 or 2
  const char* tile;
  std::string_view reason;
};

std::span<const LaunchConfig> permute_launches();

}  // namespace kiln
