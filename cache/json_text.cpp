#include "cache/json_text.h"

#include <algorithm>

namespace kiln::cache {
namespace {

// The brackets that are open at once, at most. Up to the first error that a parser would find, text
// is read here as the parser reads it; what comes behind that error is never parsed.
std::size_t depth_of(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

JsonText parse_json(std::string_view text) {
  if (depth_of(text) > kMostJsonLevels) {
    return {.value = {},
            .fault = "nests arrays and objects deeper than " + std::to_string(kMostJsonLevels) +
                     " levels"};
  }
  try {
    return {.value = nlohmann::json::parse(text), .fault = {}};
  } catch (const nlohmann::json::parse_error& error) {
    return {.value = {},
            .fault = "is not valid JSON: byte " + std::to_string(error.byte) +
                     " is not what may follow there"};
  } catch (const nlohmann::json::out_of_range&) {
    return {.value = {}, .fault = "holds a number that is too large"};
  }
}

std::string string_or_empty(const nlohmann::json& object, const char* field) {
  const auto at = object.find(field);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace kiln::cache
