// Specs, variants and keys: JSON round trips, identities, and the errors of malformed ones.
#include <algorithm>

#include "jit/compile/kernel_source.h"
#include "jit/compile/settings.h"
#include "jit/compile/template_files.h"
#include "jit/gemm/config.h"
#include "jit/op/arch.h"
#include "jit/op/user_text.h"
#include "jit/op/variant_json.h"
#include "jit/tools/spec.h"
#include "tests/support/catch.h"

using namespace kiln;
using nlohmann::json;

namespace {

const int kHopper = arch_index({9, 0});

std::string error_of(const json& spec) {
  try {
    specs_from_json(spec, kHopper);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

VariantDefinition softcap() {
  VariantDefinition d;
  d.name = "capped";
  d.params = {{"cap", DType::f32}};
  d.tensors = {{"bias", DType::f32, {"h", "q", "kv"}}};
  d.logits = "cap * tanh(logit / cap) + bias";
  return d;
}

}  // namespace

TEST_CASE("every enumerated specialization survives the trip through JSON") {
  for (const Specialization& spec : all_samples(kHopper)) {
    const auto back = specs_from_json(spec_to_json(spec, {}), kHopper);
    REQUIRE(back.size() == 1);
    REQUIRE(back[0].spec == spec);
  }
}

TEST_CASE("a spec without a tile stands for every row") {
  const auto specs = specs_from_json({{"op", "gemm"}, {"layout", "nt"}}, kHopper);
  CHECK(specs.size() == gemm_rows(specs[0].spec.traits_as<GemmTraits>(), kHopper).size());
}

TEST_CASE("a kernel of another family has none of the fields of a call's tile") {
  const json variant = {{"name", "documents"},
                        {"tensors", json::array({json::array({"doc", "i32[*, *]"})})},
                        {"mask", "doc(b, q) == doc(b, kv)"}};
  json spec = {{"op", "flash_attention"}, {"head_dim", 64}, {"variant", variant}};
  const auto bounders = [&] {
    const auto specs = specs_from_json(spec, kHopper);
    return std::ranges::count_if(specs, [](const OwnedSpec& one) {
      return one.spec.kernel().family->name != std::string_view("flash_attention");
    });
  };
  CHECK(bounders() == 1);
  spec["splits"] = false;
  CHECK(bounders() == 1);
  spec["warps"] = 4;
  CHECK(bounders() == 0);
}

TEST_CASE("a spec of 8-bit floats names the dtype of b, the precision and the scales") {
  const json base = {{"op", "gemm"}, {"dtype", "float8_e4m3fn"}};
  const GemmTraits plain = specs_from_json(base, kHopper).at(0).spec.traits_as<GemmTraits>();
  CHECK(plain.output == DType::bf16);
  CHECK(plain.input_b == DType::none);
  json mixed = base;
  mixed.update({{"dtype_b", "float8_e5m2"}, {"precision", "fast"}, {"scale_b", "vector"}});
  const GemmTraits traits = specs_from_json(mixed, kHopper).at(0).spec.traits_as<GemmTraits>();
  CHECK(traits.dtype_b() == DType::f8_e5m2);
  CHECK(traits.fast);
  CHECK(traits.scale_a == Scale::none);
  CHECK(traits.scale_b == Scale::vector);
  const auto refused = [&](json changes) {
    json spec = base;
    spec.update(changes);
    return error_of(spec);
  };
  CHECK(contains(refused({{"layout", "nn"}}), "contiguous along K (layout nt)"));
  CHECK(contains(refused({{"loads", "elements"}}), "no tensor map"));
  CHECK(contains(refused({{"dtype_b", "bfloat16"}}), "'dtype_b' must be dtype, or both"));
  CHECK(contains(refused({{"out_dtype", "uint8"}}), "'out_dtype' must be float16"));
  CHECK(
      contains(refused({{"dtype", "bfloat16"}, {"precision", "fast"}}), "'precision' fast needs"));
  CHECK(contains(refused({{"precision", "faster"}}), "'precision' must be full or fast"));
  CHECK(contains(refused({{"scale_a", "row"}}), "'scale_a' must be none, tensor, vector or gr"));
  CHECK(contains(refused({{"scale_a", "blocks"}}), "'scale_a' must be none, tensor, vector or gr"));
  const json blocks = {{"scale_a", "groups"}, {"scale_b", "blocks"}};
  json scaled = base;
  scaled.update(blocks);
  CHECK(specs_from_json(scaled, kHopper).at(0).spec.traits_as<GemmTraits>().block_scaled());
  CHECK(contains(refused({{"scale_a", "groups"}}), "'scale_a' must be groups where scale_b is"));
  CHECK(contains(refused({{"scale_b", "blocks"}}), "'scale_a' must be groups where scale_b is"));
  const auto refused_with_blocks = [&](json changes) {
    changes.update(blocks);
    return refused(changes);
  };
  CHECK(contains(refused_with_blocks({{"dtype", "bfloat16"}}), "groups needs a dtype of 8-bit"));
  CHECK(
      contains(refused_with_blocks({{"precision", "fast"}}), "'precision' fast is not for scales"));
  CHECK(contains(refused_with_blocks({{"activation", "geglu"}}), "'activation' must not be gated"));
  CHECK_THROWS_AS(specs_from_json(base, arch_index({10, 0})), std::invalid_argument);
}

TEST_CASE("a variant survives the trip with its identity") {
  const Variant variant(softcap());
  const Variant back(variant_from_json(variant_to_json(variant.definition())));
  CHECK(back.digest() == variant.digest());
}

TEST_CASE("tensors keep their numbers and stars on the trip") {
  VariantDefinition d = softcap();
  d.tensors = {{"t", DType::i64, {"h", "32", "*"}}};
  const VariantDefinition back = variant_from_json(variant_to_json(d));
  CHECK(back.tensors[0].dtype == DType::i64);
  CHECK(back.tensors[0].indices == d.tensors[0].indices);
  VariantDefinition other = d;
  other.tensors[0].indices[1] = "33";
  CHECK_FALSE(Variant(other).digest() == Variant(d).digest());
}

TEST_CASE("a list of variants survives the trip with its order") {
  VariantDefinition second = softcap();
  second.logits = "2 * logit";
  const Variant a{softcap()}, b{second};
  const Variant list{std::vector<Variant>{a, b}};
  const json text = variants_to_json(list);
  REQUIRE(text.is_array());
  CHECK(variants_from_json(text).digest() == list.digest());
  CHECK_FALSE(Variant(std::vector<Variant>{b, a}).digest() == list.digest());
  CHECK(Variant(std::vector<Variant>{a}).digest() == a.digest());
  CHECK(
      Variant(std::vector<Variant>{Variant(std::vector<Variant>{a, b}), b}).definitions().size() ==
      3);
  CHECK(variants_to_json(a).is_object());
  CHECK_THROWS_AS(Variant(std::vector<Variant>{}), std::invalid_argument);
  CHECK_THROWS_AS(Variant(std::vector<Variant>(5, a)), std::invalid_argument);
}

TEST_CASE("a variant's identity is its content, not its name") {
  VariantDefinition d = softcap();
  const Variant original(d);
  d.name = "another label";
  CHECK(Variant(d).digest() == original.digest());
  d.logits += " * 1.0f";
  CHECK_FALSE(Variant(d).digest() == original.digest());
  d = softcap();
  d.params[0].dtype = DType::i32;
  CHECK_FALSE(Variant(d).digest() == original.digest());
}

TEST_CASE("malformed variants are refused") {
  VariantDefinition d = softcap();
  SECTION("reserved name") { d.params[0].name = "logit"; }
  SECTION("not an identifier") { d.params[0].name = "a b"; }
  SECTION("name used twice") { d.tensors[0].name = "cap"; }
  SECTION("unknown index") { d.tensors[0].indices = {"head"}; }
  SECTION("no content") { d.logits.clear(); }
  SECTION("two lines") { d.logits = "logit\n#define x"; }
  SECTION("file and expression") { d.file_text = "struct UserVariant {};"; }
  SECTION("a foreign include") {
    d.logits.clear();
    d.file_text = "# include <cuda_fp16.h>\nstruct UserVariant {};";
  }
  SECTION("a foreign include behind a comment") {
    d.logits.clear();
    d.file_text = "#/* */include \"/tmp/x.h\"\nstruct UserVariant {};";
  }
  SECTION("a directive as a digraph") { d.logits = "%:include \"/tmp/x.h\""; }
  SECTION("a keyword") { d.params[0].name = "nullptr"; }
  SECTION("parameter type") { d.params[0].dtype = DType::f16; }
  CHECK_THROWS_AS(Variant(d), std::invalid_argument);
}

TEST_CASE("a template file may read no file that the key does not cover") {
  CHECK_FALSE(reads_foreign_files("#include \"/kiln/base/math.cuh\"\n#define A \\\n 1\n"));
  CHECK_FALSE(reads_foreign_files("int a = 5 % 3; // 50%: not a directive\n#pragma unroll\n"));
  CHECK_FALSE(reads_foreign_files("#define JOIN(a, b) a##b\n#ifdef X\n#endif\n#ifndef Y\n#endif"));
  CHECK_FALSE(reads_foreign_files("#if __CUDA_ARCH__ >= 900\n#elif 1\n#endif"));
  for (const SourceFile& file : template_files()) {
    INFO(file.name);
    CHECK_FALSE(reads_foreign_files(file.text));
  }
  for (const char* text : {
           "#include <x.h>",
           "# include \"/kiln/base/math.cuh\"",  // not in the form that the key looks for
           "#include \"x.h\"",
           "#include NAME",
           "#include \"/kiln/../tmp/x.h\"",
           "#include \"/kiln/no_such_file.cuh\"",
           "#include_next \"/kiln/base/math.cuh\"",
           "#/**/include \"/tmp/x.h\"",
           "#/* \n */include \"/tmp/x.h\"",
           "#\\\ninclude \"/tmp/x.h\"",
           "#inc\\ \t\r\nlude \"/tmp/x.h\"",
           "#include \"/kiln/base/\\\nmath.cuh\"",
           "%:include \"/tmp/x.h\"",
           "%\\\n:include \"/tmp/x.h\"",
           "?\?=include \"/tmp/x.h\"",
           "#?\?/\ninclude \"/tmp/x.h\"",
           "#if __has_include(\"/tmp/x.h\")\n#endif",
           "#define JOIN(a, b) a##b\n#if JOIN(__has_, include)(\"/tmp/x.h\")\n#endif",
           "#define JOIN(a, b) a %:%: b\n%:if 0\n%:elif JOIN(__has_, include)(</tmp/x.h>)\n#endif",
           "#define JOIN(a) __has_#?\?/\n#a\n# /**/ if JOIN(include)(\"/tmp/x.h\")\n#endif",
           "const char* a = \"/*\";\n#include \"/tmp/x.h\"\nconst char* b = \"*/\";",
       }) {
    INFO(text);
    CHECK(reads_foreign_files(text));
  }
}

TEST_CASE("an expression is one line without directives, in a spec as in a call") {
  for (const std::string text :
       {"acc\n*2", "acc\r*2", "# x", "%:include \"/tmp/x.h\"", "?\?=include \"/tmp/x.h\""}) {
    CHECK_FALSE(is_plain_expression(text));
    CHECK(contains(error_of({{"op", "gemm"}, {"epilogue", text}}), "epilogue must be one line"));
  }
  CHECK_FALSE(is_plain_expression(std::string_view("acc\0", 4)));
  CHECK(is_plain_expression("acc % 2 == 0 ? 1 : acc"));
}

TEST_CASE("binding checks the number and kind of values") {
  VariantDefinition d;
  d.name = "block";
  d.params = {{"size", DType::i32}};
  d.mask = "kv / size == q / size";
  const Variant v(d);
  CHECK_NOTHROW(v.bind({64}, {}));
  CHECK_THROWS_AS(v.bind({0.5}, {}), std::invalid_argument);
  CHECK_THROWS_AS(v.bind({}, {}), std::invalid_argument);
}

TEST_CASE("bad specs name the field") {
  CHECK(contains(error_of({{"op", "conv"}}), "'op'"));
  CHECK(contains(error_of({{"op", "gemm"}, {"layout", "xy"}}), "'layout'"));
  CHECK(contains(error_of({{"op", "gemm"}, {"colour", 1}}), "unknown field 'colour'"));
  CHECK(contains(error_of({{"op", "flash_attention"}, {"head_dim", 60}}), "'head_dim'"));
  CHECK(contains(error_of({{"op", "flash_attention"}, {"head_dim", "x"}}), "wrong type"));
  CHECK(contains(error_of({{"op", "flash_attention"}, {"head_dim", 64}, {"block_q", 7}}), "tile"));
  CHECK(contains(error_of(json::array()), "must be an object"));
  const auto head_dim = [](const json& value) {
    return error_of({{"op", "flash_attention"}, {"head_dim", value}});
  };
  CHECK(head_dim(64).empty());
  for (const json& value : {json(64.9), json((std::int64_t{1} << 32) + 64), json(true), json("64"),
                            json(UINT64_MAX), json(INT64_MIN)}) {
    CHECK(contains(head_dim(value), "'head_dim' has the wrong type: it must be a whole number"));
  }
  CHECK(contains(error_of({{"op", "gemm"}, {"block_m", 0}}), "'block_m' must be a tile size"));
  CHECK(contains(error_of({{"op", "gemm"}, {"dtype", ""}}), "'dtype' must be float16"));
  CHECK(
      contains(error_of({{"op", "gemm"}, {"activation", ""}}), "'activation' must be none, relu"));
  CHECK(contains(error_of({{"op", "gemm"}, {"gate", "halves"}}), "'gate' needs activation swiglu"));
  CHECK_THROWS_AS(parse_specs("{"), std::invalid_argument);
}

TEST_CASE("a gated spec has its gates in halves unless it says otherwise") {
  const json gated{{"op", "gemm"}, {"activation", "geglu"}};
  CHECK(specs_from_json(gated, kHopper).front().spec.traits_as<GemmTraits>().gate == Gate::halves);
  json alternating = gated;
  alternating["gate"] = "interleaved";
  const OwnedSpec owned = specs_from_json(alternating, kHopper).front();
  CHECK(spec_to_json(owned.spec, owned.texts())["gate"] == "interleaved");
}

TEST_CASE("bad variants of a spec are refused in our words") {
  const auto error = [](const json& variant) {
    return error_of({{"op", "flash_attention"}, {"head_dim", 64}, {"variant", variant}});
  };
  CHECK(contains(error({{"logits", "logit"}, {"masks", "kv < 1"}}), "unknown field 'masks'"));
  CHECK(contains(error("name"), "malformed: must be an object"));
  CHECK(contains(error({{"logits", 3}}), "'logits' must be a string, got 3"));
  for (const json& params :
       {json(3), json{{"a", "f32", "zz"}}, json{{"a"}}, json{{"a", 1}}, json{"a"}}) {
    const std::string text = error({{"logits", "logit"}, {"params", params}});
    CHECK(contains(text, "'params' must be an array of [name, type] pairs"));
    CHECK_FALSE(contains(text, "json.exception"));
  }
}

TEST_CASE("keys: one for each specialization, the same in every process") {
  std::vector<cache::Key> keys;
  for (const Specialization& spec : all_samples(kHopper)) {
    keys.push_back(source_of(spec, {}).key);
  }
  std::sort(keys.begin(), keys.end());
  CHECK(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
}

TEST_CASE("sizes of the environment") {
  CHECK(parse_bytes("512") == 512);
  CHECK(parse_bytes("2K") == 2048);
  CHECK(parse_bytes("3MiB") == 3u << 20);
  CHECK(parse_bytes("1G") == 1u << 30);
  for (const char* bad : {"", "K", "1T", "1.5G", "-1", "99999999999999999G"}) {
    CHECK_THROWS_AS(parse_bytes(bad), std::invalid_argument);
  }
}
