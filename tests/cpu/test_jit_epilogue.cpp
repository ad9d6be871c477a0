// Epilogues with run-time values: their identity, their checks, what a call packs, their specs.
#include <cstddef>
#include <cstring>
#include <string>

#include "jit/gemm/render.h"
#include "jit/gemm/user_epilogue.h"
#include "jit/op/arch.h"
#include "jit/op/source_text.h"
#include "jit/op/user_text.h"
#include "jit/op/variant_json.h"
#include "jit/tools/spec.h"
#include "templates/gemm/params.h"
#include "tests/cpu/problem_calls.h"
#include "tests/support/catch.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

EpilogueDefinition scaled() {
  return {"scaled",
          {{"t", DType::f32}, {"shift", DType::i32}},
          {{"s", DType::f32, {"n"}}},
          "acc * s[col + shift] + t"};
}

std::string error_of(const EpilogueDefinition& d) {
  try {
    Epilogue{d};
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

std::uint64_t word_at(const CallArguments& arguments, std::size_t word) {
  std::uint64_t value;
  std::memcpy(&value, arguments.bytes().data() + sizeof(GemmParams) + 8 * word, 8);
  return value;
}

}  // namespace

TEST_CASE("an epilogue's identity is its content") {
  const Epilogue one(scaled());
  EpilogueDefinition d = scaled();
  d.name = "another label";
  CHECK(Epilogue(d).digest() == one.digest());
  d.value += " ";
  CHECK(Epilogue(d).digest() != one.digest());
  d = scaled(), d.params[0].dtype = DType::i32;
  CHECK(Epilogue(d).digest() != one.digest());
  d = scaled(), d.tensors[0].indices = {"*"};
  CHECK(Epilogue(d).digest() != one.digest());
  CHECK(Epilogue({"plain", {}, {}, "acc + bias"}).digest() == epilogue_digest("acc + bias"));
}

TEST_CASE("what an epilogue cannot be is said in one sentence") {
  EpilogueDefinition d = scaled();
  d.params[1].name = "t";
  CHECK(error_of(d) == "Epilogue 'scaled': the name 't' is used twice");
  d.params[1].name = "row";
  CHECK(contains(error_of(d), "'row' cannot name a parameter or tensor"));
  CHECK(error_of(d).ends_with(
      "other than acc, bias, residual, row, col, batch, m, n, kiln, arguments"));
  d = scaled(), d.tensors[0].indices = {"kv"};
  CHECK(error_of(d) ==
        "Epilogue 'scaled': tensor 's' has the index 'kv'; expected m, n, batch, a whole number "
        "or *");
  d = scaled(), d.value = "";
  CHECK(error_of(d) == "Epilogue 'scaled': needs value=, the expression of an output");
  d.value = "acc\n+ 1";
  CHECK(contains(error_of(d), "epilogue must be one line"));
  d = scaled(), d.name = "\xff";
  CHECK(contains(error_of(d), "its name must be UTF-8 text"));
  const Epilogue epilogue(scaled());
  CHECK_THROWS_WITH(epilogue.bind({1.0}, {}),
                    "Epilogue 'scaled': takes 2 parameters and 1 tensors, got 1 and 0");
  CHECK_THROWS_WITH(epilogue.bind({1.0, 0.5}, {half({8}, DType::f32)}),
                    "Epilogue 'scaled': parameter 'shift' must be a 32-bit whole number");
  const auto bound = [&](double shift) { epilogue.bind({1.0, shift}, {half({8}, DType::f32)}); };
  CHECK_NOTHROW(bound(-2147483648.0));
  CHECK_NOTHROW(bound(2147483647.0));
  CHECK_THROWS(bound(-2147483649.0));
  CHECK_THROWS(bound(2147483648.0));
}

TEST_CASE("a call checks bound tensors and packs them behind its parameters") {
  Gemm call;  // m 6, n 8
  const Epilogue epilogue(scaled());
  const auto error_with = [&](const TensorView& s) {
    const BoundEpilogue bound = epilogue.bind({1.5, -2}, {s});
    call.options.bound_epilogue = &bound;
    return call.error();
  };
  CHECK(error_with(half({8}, DType::f32)).empty());
  CHECK(call.problem.traits.epilogue == epilogue.digest());
  const CallArguments& arguments = call.problem.arguments();
  CHECK(arguments.size() == sizeof(GemmParams) + 5 * 8);
  CHECK(word_at(arguments, 0) == 0x3fc00000);
  CHECK(word_at(arguments, 1) == 0xfffffffe);
  CHECK(word_at(arguments, 3) == 1);
  CHECK(word_at(arguments, 4) == 8);
  CHECK(arguments.pointers() == 4);
  CHECK(arguments.alignment(3) == 4);
  CHECK(error_with(half({1}, DType::f32)).empty());
  CHECK(word_at(arguments, 3) == 0);
  CHECK(contains(error_with(half({6}, DType::f32)),
                 "gemm's epilogue: s must have size 8 (or 1) in dimension 0 (n), got [6]"));
  CHECK(contains(error_with(half({8}, DType::f16)), "s must be float32 as declared, got float16"));
  CHECK(contains(error_with(half({1, 8}, DType::f32)), "s must have 1 dimension as declared"));
  TensorView elsewhere = half({8}, DType::f32);
  elsewhere.device_ordinal = 1;
  CHECK(contains(error_with(elsewhere), "s"));
  call.options.epilogue = "acc";
  CHECK(contains(error_with(half({8}, DType::f32)), "cannot be given beside bound_epilogue"));
  call.options.epilogue = {};
  call.options.activation = Activation::relu;
  CHECK(contains(error_with(half({8}, DType::f32)), "cannot be combined with epilogue"));
}

TEST_CASE("vectors are required of what is read by vectors, and of no epilogue's tensor") {
  Gemm call;
  EpilogueDefinition d = scaled();
  d.value += " + bias";
  const BoundEpilogue bound = Epilogue(d).bind({1, 0}, {half({8}, DType::f32)});
  call.options.bound_epilogue = &bound;
  CHECK(contains(call.error(), "names bias, which is not given"));
  call.options.bias = half({8}, DType::f32);
  call.options.scale_a = half({1}, DType::f32);
  call.options.scale_b = half({8}, DType::f32);
  REQUIRE(call.error().empty());
  CallArguments& arguments = call.problem.arguments();
  GemmTraits traits = call.problem.traits;
  traits.stores = traits.loads = Access::vectors;
  require_vectors(traits, arguments);
  const std::size_t expected[] = {16, 16, 16, 16, 4, 16, 4};  // a, b, out, bias, the scales, s
  REQUIRE(arguments.pointers() == std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i)
    CHECK(arguments.alignment(i) == expected[i]);
}

TEST_CASE("subscripts of several indices become calls, of the same length") {
  const std::vector<std::string> names{"s", "d"};
  const std::pair<std::string_view, std::string_view> texts[] = {
      {"acc * s[col]", "acc * s[col]"},
      {"d[row, col] + s[ d [ 1,2 ] ]", "d(row, col) + s[ d ( 1,2 ) ]"},
      {"d[min(row, 3), s[col]]", "d(min(row, 3), s[col])"},
      {"s[min(row, 3)]", "s[min(row, 3)]"},
      {"other[row, col] + '['", "other[row, col] + '['"},
      {"d[row, col", "d[row, col"},
      {"d[row, col)]", "d[row, col)]"},
      {"]d[", "]d["}};
  for (const auto& [given, expected] : texts) CHECK(with_calls(given, names) == expected);
}

TEST_CASE("a spec of an epilogue survives the trip through JSON") {
  const int arch = arch_index({9, 0});
  const nlohmann::json given = {{"op", "gemm"}, {"epilogue", epilogue_to_json(scaled())}};
  const auto specs = specs_from_json(given, arch);
  CHECK(specs[0].spec.traits_as<GemmTraits>().epilogue == Epilogue(scaled()).digest());
  const nlohmann::json told = spec_to_json(specs[0].spec, specs[0].texts());
  CHECK(told["epilogue"] == given["epilogue"]);
  const auto back = specs_from_json(told, arch);
  REQUIRE(back.size() == 1);
  CHECK(back[0].spec == specs[0].spec);
  const std::string source = specs[0].spec.kernel().render(back[0].spec, back[0].texts());
  CHECK(contains(source, "BoundArguments<"));
  CHECK(contains(source, "acc * s[col + shift] + t"));

  const auto error = [&](const nlohmann::json& epilogue) -> std::string {
    try {
      specs_from_json({{"op", "gemm"}, {"epilogue", epilogue}}, arch);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  CHECK(contains(error({{"value", 1}}), "field 'epilogue' is malformed: 'value' must be a string"));
  CHECK(contains(error({{"valeu", "acc"}}), "unknown field 'valeu'; it takes name, params"));
  CHECK(contains(error({{"name", "x"}}), "needs value="));
  CHECK(contains(error({{"value", "acc"}, {"params", nlohmann::json::parse(R"([["t", "f64"]])")}}),
                 "Epilogue: the type of the parameter 't' must be \"f32\" or \"i32\""));
  CHECK(contains(error({{"value", "acc"}, {"tensors", nlohmann::json::parse(R"([["s", "f32"]])")}}),
                 "Epilogue: tensor 's' must be declared as \"f32[n]\""));
  // Without declarations it is the text.
  const auto plain = specs_from_json({{"op", "gemm"}, {"epilogue", {{"value", "acc"}}}}, arch);
  CHECK(spec_to_json(plain[0].spec, plain[0].texts())["epilogue"] == "acc");
}
