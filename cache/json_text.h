// The only parser of JSON text that somebody else may have written: entries of a cache folder,
// specs, tuning tables. A parsed value is copied, compared and printed by recursion, one frame for
// each level, so that a text that nests deeper than the bound is refused before it is parsed.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kiln::cache {

// Far beyond what specs, tables and entries need, and shallow enough for a small thread stack.
inline constexpr std::size_t kMostJsonLevels = 64;

struct JsonText {
  std::optional<nlohmann::json> value;
  std::string fault;  // the tail of a sentence ("is not valid JSON: ..."), empty with a value
};

// Throws nothing but bad_alloc.
JsonText parse_json(std::string_view text);

// A field of an object that must be a string; empty where it is missing or something else. Entries
// may be sealed by others, so that no type in their descriptions can be relied on.
std::string string_or_empty(const nlohmann::json& object, const char* field);

}  // namespace kiln::cache
