// The parser of users' expressions: C++'s precedence, types, and what it does not follow.
#include <string>
#include <utility>

#include "jit/op/expression.h"
#include "tests/support/catch.h"

using namespace kiln;

namespace {

NamedType type_of(std::string_view name) {
  if (name == "q" || name == "kv" || name == "at.q") return {true, ValueType::integer};
  if (name == "x" || name == "at.distance") return {true, ValueType::real};
  if (name == "element") return {true, ValueType::unknown};
  return {};
}

// The tree in Lisp's way, with the types of values: b, i, f or ?.
std::string text_of(const Expression& e) {
  constexpr const char* kSigns[] = {"?", "",   "",   "neg", "~",  "!",   "+",   "-",   "*",  "/",
                                    "%", "<<", ">>", "<",   "<=", ">",   ">=",  "==",  "!=", "&",
                                    "|", "^",  "&&", "||",  "?:", "min", "max", "abs", "to"};
  const std::string type(1, "?bif"[static_cast<int>(e.type)]);
  if (e.operands.empty()) return e.text + ":" + type;
  std::string text = std::string("(") + kSigns[static_cast<int>(e.operation)] + ":" + type;
  for (const ExpressionPointer& operand : e.operands) text += " " + text_of(*operand);
  return text + ")";
}
std::string parsed(std::string_view text) {
  const ParsedExpression result = parse_expression(text, type_of);
  return result.tree ? text_of(*result.tree) : "lost at " + result.fault;
}

}  // namespace

TEST_CASE("an expression is parsed by C++'s rules of precedence") {
  const std::pair<const char*, const char*> texts[] = {
      {"q - kv - 1", "(-:i (-:i q:i kv:i) 1:i)"},
      {"q + kv * 2 % 3", "(+:i q:i (%:i (*:i kv:i 2:i) 3:i))"},
      {"q<<1+1 < kv", "(<:b (<<:i q:i (+:i 1:i 1:i)) kv:i)"},
      {"q & 3 == kv", "(&:i q:i (==:b 3:i kv:i))"},
      {"q ^ kv & 1 | 2", "(|:i (^:i q:i (&:i kv:i 1:i)) 2:i)"},
      {"q < 1 || kv < 2 && q == kv", "(||:b (<:b q:i 1:i) (&&:b (<:b kv:i 2:i) (==:b q:i kv:i)))"},
      {"not q or kv and true", "(||:b (!:b q:i) (&&:b kv:i true:b))"},
      {"(q < 1) | (kv < 2) & (q == kv)",
       "(||:b (<:b q:i 1:i) (&&:b (<:b kv:i 2:i) (==:b q:i kv:i)))"},
      {"q & (kv < 2)", "(&:i q:i (<:b kv:i 2:i))"},
      {"-q + ~-kv", "(+:i (neg:i q:i) (~:i (neg:i kv:i)))"},
      {"q < kv == kv < q", "(==:b (<:b q:i kv:i) (<:b kv:i q:i))"},
      {"q ? kv : q ? 1 : 2", "(?::i q:i kv:i (?::i q:i 1:i 2:i))"},
      {"min(q, kv) + abs(-q)", "(+:i (min:i q:i kv:i) (abs:i (neg:i q:i)))"}};
  for (const auto& [given, expected] : texts) {
    CHECK(parsed(given) == expected);
  }
  CHECK(parsed("q /* + */ - 3 // rest") == "(-:i q:i 3:i)");
}

TEST_CASE("the types of an expression are C++'s") {
  CHECK(parsed("x * q < 2") == "(<:b (*:f x:f q:i) 2:i)");
  CHECK(parsed("float(q) + int(x)") == "(+:f (to:f q:i) (to:i x:f))");
  CHECK(parsed("(int)x + static_cast<float>(q)") == "(+:f (to:i x:f) (to:f q:i))");
  // A comparison of ints alone looks through long long, where nothing has been computed in it.
  CHECK(parsed("static_cast<long long>(q) == static_cast<long long>(kv + 1)") ==
        "(==:b q:i (+:i kv:i 1:i))");
  CHECK(parsed("static_cast<long long>(q) > 3") == "(>:b q:i 3:i)");
  CHECK(parsed("static_cast<long long>(q) * 2 > kv") == "(>:b (*:? (?:? q:i) 2:i) kv:i)");
  CHECK(parsed("static_cast<long long>(q) > 2.5f") == "(>:b (?:? q:i) 2.5f:f)");
  CHECK(parsed("static_cast<long long>(x) > 3") == "(>:b (?:? x:f) 3:i)");
  CHECK(parsed("at.q - at.distance") == "(-:f at.q:i at.distance:f)");
  CHECK(parsed("(q < kv) + true") == "(+:i (<:b q:i kv:i) true:b)");
  CHECK(parsed("1.5 + .5f + 1e3 + 0x1F + 017") ==
        "(+:f (+:f (+:f (+:f 1.5:f .5f:f) 1e3:f) 0x1F:i) 017:i)");
  CHECK(parsed("element + q == 1") == "(==:b (+:? element:? q:i) 1:i)");
  CHECK(parsed("min(q, x) < 3u") == "(<:b min():? 3u:?)");
  CHECK(parsed("helper(q, (kv)) > 4000000000") == "(>:b helper():? 4000000000:?)");
}

TEST_CASE("a text that cannot be followed has no tree") {
  for (const char* const text :
       {"",       "q +",    "q kv",     "(q",      "q)",     "unknown < 3", "(unsigned)q",
        "q = 3",  "q += 1", "q++",      "f<3>(q)", "f(q).x", "f(q)(kv)",    "[&] { return q; }()",
        "q, kv",  "\"q\"",  "'q'",      "q->x",    "q ? kv", "q <: 3",      "arguments.x.value",
        "min(q)", "f(q",    "\xc3\xa4", "q <=> kv"}) {
    INFO(text);
    CHECK(parsed(text).starts_with("lost at "));
  }
  CHECK(parsed(std::string(5000, '(') + "q").starts_with("lost at "));
  CHECK(parsed(std::string(5000, '~') + "q").starts_with("lost at "));
  std::string sum = "q";
  for (int i = 0; i < 2000; ++i) sum += " + q";
  CHECK(parsed(sum).starts_with("lost at "));
}
