// The measured table of GEMM tiles: its file, which entry serves a problem, and that choices follow
// it.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jit/gemm/tuning.h"
#include "jit/op/arch.h"
#include "kiln/control.h"
#include "tests/support/catch.h"

using namespace kiln;
using nlohmann::json;

namespace {

const int kHopper = arch_index({9, 0});
constexpr int kSms = 132;

json tile_json(int block_m, int block_n, int block_k, int stages) {
  return {{"block_m", block_m}, {"block_n", block_n}, {"block_k", block_k}, {"stages", stages}};
}

json entry_json(std::int64_t m, const json& config) {
  return {{"dtype", "bfloat16"}, {"out_dtype", "bfloat16"},
          {"layout", "nt"},      {"m", m},
          {"n", 4096},           {"k", 4096},
          {"batch", 1},          {"config", config},
          {"us", 12.5}};
}

json table_json(const json& entries) {
  return {{"schema", 1},
          {"device", "NVIDIA H200"},
          {"arch", "sm_90"},
          {"sm_count", kSms},
          {"entries", entries}};
}

// A file that goes with the test; the process has no table before or after.
class TableFile {
 public:
  TableFile() { set_tuning(""); }
  ~TableFile() {
    set_tuning("");
    std::filesystem::remove(path());
  }
  std::string path() const {
    return (std::filesystem::temp_directory_path() /
            ("kiln-tuning-" + std::to_string(getpid()) + ".json"))
        .string();
  }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  void use(const json& table) const {
    write(table.dump());
    set_tuning(path());
  }
};

const json kWide = tile_json(128, 256, 64, 4), kNarrow = tile_json(128, 96, 64, 6);

GemmChoice choice(const GemmExtent& extent, const GemmTraits& traits = {}, int sm_count = kSms) {
  return choose_gemm(traits, kHopper, extent, sm_count, /*may_split=*/true);
}
const GemmSm90Config& config(const GemmChoice& choice) { return choice.row.sm90(); }

// What set_tuning says of a file.
std::string refusal(const std::string& path) {
  try {
    set_tuning(path);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TunedGemm measured_at(std::int64_t m) { return {{.n = 64, .k = 64}, m, {}}; }

}  // namespace

TEST_CASE("tuning: the nearest M that rounds up to the same power of two") {
  const GemmTuning tuning(
      {measured_at(512), measured_at(1), measured_at(70), measured_at(100), measured_at(128)});
  const auto found = [&](std::int64_t m) {
    const TunedGemm* entry = tuning.find({.n = 64, .k = 64}, m);
    return entry ? entry->m : 0;
  };
  CHECK(found(1) == 1);
  CHECK(found(2) == 0);
  CHECK(found(64) == 0);  // 33 to 64
  CHECK(found(65) == 70);
  CHECK(found(84) == 70);
  CHECK(found(85) == 100);  // as near: the larger
  CHECK(found(113) == 100);
  CHECK(found(114) == 128);
  CHECK(found(129) == 0);
  CHECK(found(257) == 512);
  CHECK(found(512) == 512);
  CHECK(found(513) == 0);
  CHECK(found(2147483647) == 0);
  CHECK(tuning.find({.n = 64, .k = 128}, 1) == nullptr);
  CHECK(GemmTuning({}).find({.n = 64, .k = 64}, 1) == nullptr);
}

TEST_CASE("tuning: choices follow the table, and each thread's memory of them its changes") {
  const TableFile file;
  const GemmExtent extent{512, 4096, 4096};
  const GemmChoice model = choice(extent);
  CHECK(model.measured_m == 0);
  for (const json& tile : {kWide, kNarrow, kWide}) {
    file.use(table_json(json::array({entry_json(512, tile)})));
    CHECK(config(choice(extent)).block_n == tile["block_n"]);
    CHECK(choice(extent).measured_m == 512);
    CHECK(config(choice({300, 4096, 4096})).block_n == tile["block_n"]);
  }
  CHECK(set_tuning("") == file.path());
  CHECK(choice(extent).row == model.row);
  CHECK(choice(extent).measured_m == 0);
}

TEST_CASE("tuning: a file that is read again unchanged is the same table") {
  const TableFile file;
  file.use(table_json(json::array({entry_json(512, kWide)})));
  const GemmTuning* first = gemm_tuning();
  set_tuning(file.path());
  CHECK(gemm_tuning() == first);
  file.use(table_json(json::array({entry_json(512, kNarrow)})));
  CHECK(gemm_tuning() != first);
}

TEST_CASE("tuning: a tile that shares K takes the number of CTAs, as far as K goes") {
  const TableFile file;
  json tile = tile_json(64, 128, 64, 9);
  tile["splits"] = 3;
  json shallow = entry_json(64, tile);
  shallow["k"] = 128;
  file.use(table_json(json::array({entry_json(64, tile), shallow})));
  CHECK(choice({64, 4096, 4096}).splits == 3);
  CHECK(choice({64, 4096, 128}).splits == 2);
  CHECK(config(choice({64, 4096, 4096})).splits);
}

TEST_CASE("tuning: what was not measured is the model's") {
  const TableFile file;
  file.use(table_json(json::array({entry_json(512, kNarrow)})));
  const GemmExtent extent{512, 4096, 4096};
  const auto is_measured = [&](const GemmTraits& traits) {
    return choice(extent, traits).measured_m != 0;
  };
  GemmTraits traits;
  CHECK(is_measured(traits));
  traits.output = DType::f16;  // as large
  traits.bias = DType::f32;
  traits.activation = Activation::silu;
  CHECK(is_measured(traits));
  traits.output = DType::f32;
  CHECK_FALSE(is_measured(traits));
  traits = {};
  traits.input = DType::f16;
  CHECK_FALSE(is_measured(traits));
  traits = {};
  traits.major_b = Major::mn;
  CHECK_FALSE(is_measured(traits));
  for (const GemmExtent& other : {GemmExtent{512, 4096, 4104}, GemmExtent{512, 4104, 4096},
                                  GemmExtent{512, 4096, 4096, 2}, GemmExtent{512, 4096, 0}}) {
    CHECK(choice(other).measured_m == 0);
  }
  CHECK(choice(extent, {}, 114).measured_m == 0);
  CHECK(choose_gemm({}, arch_index({8, 0}), extent, kSms, true).measured_m == 0);
  json bytes = entry_json(512, tile_json(128, 256, 128, 4));
  bytes["dtype"] = "float8_e4m3fn";
  file.use(table_json(json::array({bytes})));
  traits = {};
  traits.input = DType::f8_e4m3;
  CHECK(is_measured(traits));
  traits.scale_a = Scale::groups, traits.scale_b = Scale::blocks;
  CHECK_FALSE(is_measured(traits));
  // The caller's own tile comes first.
  file.use(table_json(json::array({entry_json(512, kNarrow)})));
  const GemmRow row = find_gemm_row({}, kHopper, GemmTile{128, 256, 64, 4});
  CHECK(choose_gemm({}, kHopper, extent, kSms, true, row).row == row);
}

TEST_CASE("tuning: a tile that does not serve, or that prewarming does not know, is ignored") {
  const TableFile file;
  json portable = entry_json(512, tile_json(128, 128, 64, 3));  // on Hopper: by name alone
  json unknown = entry_json(64, tile_json(77, 128, 64, 3));
  file.use(table_json(json::array({portable, unknown, entry_json(4096, kNarrow)})));
  CHECK(choice({512, 4096, 4096}).measured_m == 0);
  CHECK(choice({64, 4096, 4096}).measured_m == 0);
  GemmTraits unaligned;
  unaligned.loads = Access::elements;  // which the sm_90a tile cannot load
  CHECK(choice({4096, 4096, 4096}).measured_m == 4096);
  CHECK(choice({4096, 4096, 4096}, unaligned).measured_m == 0);
  CHECK(choice({512, 4096, 4096}, unaligned).measured_m == 512);
  CHECK(config(choice({512, 4096, 4096}, unaligned)).block_m == 128);
}

TEST_CASE("tuning: a file that is no table is one error, and changes nothing") {
  const TableFile file;
  CHECK(refusal("/nonexistent/t.json") ==
        "tuning table /nonexistent/t.json: the file cannot be read");
  CHECK(refusal("/") == "tuning table /: the file cannot be read");
  file.use(table_json(json::array({entry_json(512, kWide)})));
  const auto refused = [&](const json& table, const std::string& message) {
    file.write(table.dump());
    INFO(message);
    CHECK(refusal(file.path()).find(message) != std::string::npos);
  };
  const auto with = [](const char* field, const json& value) {
    json entry = entry_json(512, kWide);
    entry[field] = value;
    return table_json(json::array({entry_json(1, kWide), entry}));
  };
  for (const char* text : {"", "{", "\xff", "{} {}"}) {
    file.write(text);
    CHECK(refusal(file.path())
              .starts_with("tuning table " + file.path() + ": the file is not valid JSON: byte "));
  }
  file.write(std::string(300'000, '['));
  CHECK(refusal(file.path()).find("nests arrays and objects deeper") != std::string::npos);
  refused(json::array(), "must be an object");
  refused(json::object(), "field 'schema' is missing");
  json later = table_json(json::array());
  later["schema"] = 2;
  refused(later, "has schema 2");
  json strange = table_json(json::array());
  strange["arch"] = "sm_12x";
  refused(strange, "field 'arch': ");
  refused(table_json(3), "field 'entries' must be an array");
  refused(table_json(json::array({3})), "entry 1: must be an object");
  for (const json& value : {json(0), json(-1), json(1.5), json("1"), json(),
                            json(std::uint64_t{1} << 63), json(std::int64_t{1} << 31)}) {
    for (const char* field : {"m", "n", "k", "batch"}) {
      refused(with(field, value), std::string("entry 2: field '") + field + "' must be a whole");
    }
  }
  refused(with("op", "rms_norm"),
          "entry 2: field 'op' must be flash_attention or gemm, got 'rms_norm'");
  refused(with("op", 3), "entry 2: field 'op' must be a string, got 3");
  refused(with("dtype", "int8"),
          "entry 2: field 'dtype' must be float16, bfloat16, float32, float8_e4m3fn or "
          "float8_e5m2, got 'int8'");
  refused(with("out_dtype", 3), "entry 2: field 'out_dtype' must be a string, got 3");
  refused(with("layout", "tnt"), "entry 2: field 'layout' must be");
  refused(with("precision", "low"), "entry 2: field 'precision' must be");
  refused(with("config", json::array()), "entry 2, field 'config': must be an object");
  refused(with("config", json::object()), "field 'block_m' is missing");
  CHECK(choice({512, 4096, 4096}).measured_m == 512);
}

TEST_CASE("tuning: the listed configs are those that calls choose among") {
  const auto configs = [](const char* spec, const char* arch, std::int64_t k) {
    return json::parse(list_gemm_configs(spec, arch, k));
  };
  for (const char* spec :
       {R"({"op": "gemm"})", R"({"op": "gemm", "dtype": "float32", "layout": "nn"})",
        R"({"op": "gemm", "loads": "elements"})", R"({"op": "gemm", "dtype": "float8_e5m2"})"}) {
    CHECK(configs(spec, "sm_90a", 0).size() > 5);
  }
  const json hopper = configs(R"({"op": "gemm"})", "sm_90a", 4096);
  int splits = 0;
  GemmTraits traits;
  for (const json& one : hopper) {
    const GemmTile tile{one.at("block_m"), one.at("block_n"),       one.at("block_k"),
                        one.at("stages"),  one.value("cluster", 0), one.value("splits", 0)};
    const GemmRow row = find_gemm_row(traits, kHopper, tile);
    REQUIRE(row.exists());
    REQUIRE(row.is_sm90());
    CHECK(row.sm90().splits == one.contains("splits"));
    splits = std::max(splits, one.value("splits", 0));
  }
  CHECK(splits == 8);
  CHECK(configs(R"({"op": "gemm"})", "sm_90a", 64).size() < hopper.size());
  for (const json& one : configs(R"({"op": "gemm"})", "sm_80", 0)) {
    CHECK_FALSE(one.contains("splits"));
  }
  CHECK_THROWS_AS(list_gemm_configs(R"({"op": "flash_attention", "head_dim": 64})", "sm_90a"),
                  std::invalid_argument);
}
