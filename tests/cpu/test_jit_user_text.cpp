// What Kiln reads in a user's expression: its numbers and its names.
#include <string_view>
#include <utility>

#include "jit/gemm/user_epilogue.h"
#include "jit/op/user_text.h"
#include "kiln/variant.h"
#include "tests/support/catch.h"

using namespace kiln;

TEST_CASE("numbers of an expression without a suffix become floats") {
  const std::pair<std::string_view, std::string_view> texts[] = {
      {"acc * 0.3", "acc * 0.3f"},
      {".5 + 1. - 1e-3 * 2.5E+10", ".5f + 1.f - 1e-3f * 2.5E+10f"},
      {"1'000.5 + 0x1p-3 + 0x1.8P+1", "1'000.5f + 0x1p-3f + 0x1.8P+1f"},
      {"1e5*acc+1e5-2", "1e5f*acc+1e5f-2"},
      {"(acc+.5)/.25", "(acc+.5f)/.25f"}};
  for (const auto& [given, expected] : texts) {
    CHECK(with_float_literals(given) == expected);
    CHECK(with_float_literals(expected) == expected);
  }
  for (const std::string_view unchanged :
       {"acc * 2", "0.3f + 1.F", "1.0L", "x1.x", "a1e5 + e5", "0x1e + 0xe5 + 017", "1.0_deg",
        "1.5f16 + 2.0bf16", "\"0.5\" '.' /* 0.5 */ // 0.5", "'\\'' + \"a\\\"0.5\"", "1ull << 3",
        "at.b", "", ".", "\"0.5", "/* 0.5"}) {
    CHECK(with_float_literals(unchanged) == unchanged);
  }
}

TEST_CASE("an expression mentions the names that it is made of") {
  CHECK(mentions_name("acc+bias*2", "bias"));
  CHECK(mentions_name("bias", "bias"));
  CHECK(mentions_name("f(residual)", "residual"));
  for (const std::string_view other :
       {"acc + my_bias", "bias2", "\"bias\"", "'bias'", "acc /* bias */", "acc // bias", "1bias"}) {
    CHECK_FALSE(mentions_name(other, "bias"));
  }
}
TEST_CASE("UTF-8 is told from other bytes") {
  for (const std::string_view text :
       {"", "acc",
        "gr\xc3\xb6\xc3\x9f"
        "e",
        "\xe2\x82\xac", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x9f\x94\xa5", "\xf4\x8f\xbf\xbf"}) {
    CAPTURE(text);
    CHECK(is_utf8(text));
  }
  for (const std::string_view text :
       {"\xff", "\x80", "\xc3", "\xc0\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xe2\x82", "\xe2\x82z", "\xf5\x80\x80\x80"}) {
    CHECK_FALSE(is_utf8(text));
  }
}

TEST_CASE("text that no spec can hold is refused before a spec is made of it") {
  CHECK_THROWS_WITH(epilogue_digest("acc \xff"), "gemm: epilogue must be UTF-8 text");
  VariantDefinition d;
  d.name = "v\xff";
  d.logits = "logit";
  CHECK_THROWS_WITH(Variant(d), "Variant: its name, expressions and files must be UTF-8 text");
  d.name = "v";
  d.logits = "logit /* \xc3 */";
  CHECK_THROWS_WITH(Variant(d), "Variant: its name, expressions and files must be UTF-8 text");
}
