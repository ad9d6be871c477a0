// JSON text of anybody's: what is parsed, and what is refused before it can harm.
#include "cache/json_text.h"

#include <string>

#include "tests/support/catch.h"

using namespace kiln::cache;
using nlohmann::json;

namespace {

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace

TEST_CASE("text up to the bound is parsed, and beyond it refused by name") {
  CHECK(parse_json("{\"a\": [1, \"x\"]}").value == json{{"a", {1, "x"}}});
  CHECK(parse_json(nested(kMostJsonLevels)).value);
  for (const std::string& text :
       {nested(kMostJsonLevels + 1), nested(1'000'000), std::string(1'000'000, '{')}) {
    const JsonText parsed = parse_json(text);
    CHECK_FALSE(parsed.value);
    CHECK(parsed.fault == "nests arrays and objects deeper than 64 levels");
  }
}

TEST_CASE("brackets inside of strings nest nothing") {
  const std::string brackets = std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\\\\";
  CHECK(parse_json("[\"" + brackets + "\"]").value);
  CHECK_FALSE(parse_json("[\"" + brackets + "\"," + nested(64) + "]").value);
  std::string flat = "[1";
  for (int i = 0; i < 1000; ++i) flat += ",[{}]";
  CHECK(parse_json(flat + "]").value);
}

TEST_CASE("text that is no JSON is refused with its place, and nothing is thrown") {
  CHECK(parse_json("{").fault == "is not valid JSON: byte 2 is not what may follow there");
  for (const char* text : {"", "[1,]", "\"\xff\"", "{} {}", "]]]]", "nul", "\"\\"}) {
    INFO(text);
    CHECK_FALSE(parse_json(text).value);
    CHECK(parse_json(text).fault.starts_with("is not valid JSON"));
  }
  CHECK(parse_json("[1e999]").fault == "holds a number that is too large");
}

TEST_CASE("a field of another type than text is as good as absent") {
  const json object{{"what", "a kernel"}, {"arch", 90}, {"warnings", {"x"}}};
  CHECK(string_or_empty(object, "what") == "a kernel");
  for (const char* field : {"arch", "warnings", "missing"})
    CHECK(string_or_empty(object, field).empty());
}
