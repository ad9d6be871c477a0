// The templates embedded in the library at build time (cmake/embed.cmake writes the definition).
#pragma once

#include <span>
#include <string_view>

namespace kiln {

struct EmbeddedFile {
  std::string_view name;  // "/kiln/base/types.cuh": the path under templates/ after "/kiln"
  std::string_view text;
};
std::span<const EmbeddedFile> embedded_templates();

}  // namespace kiln
