// Attention's entries of the measured table: which one serves a problem, and that calls follow it.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jit/attention/tuning.h"
#include "kiln/control.h"
#include "tests/support/catch.h"

using namespace kiln;
using nlohmann::json;

namespace {

// A call on the emulated sm_90a. The rows of head dim 128 are 128x128x2, for up to 1.5k keys, and
// 192x80x2.
struct Call {
  int batch = 2, len_q = 2048, len_kv = 2048, heads = 16, heads_kv = 16, head_dim = 128;
  AttentionOptions options{.causal = true};

  json explained() const {
    std::uintptr_t place = 0;  // nobody reads the tensors; they must not overlap
    const auto view = [&](int length, int its_heads) {
      place += std::uintptr_t{1} << 40;
      TensorView tensor = contiguous_view(reinterpret_cast<void*>(place), DType::bf16, 0, batch,
                                          length, its_heads, head_dim);
      tensor.device_type = DeviceType::cpu;
      return tensor;
    };
    const TensorView q = view(len_q, heads), k = view(len_kv, heads_kv), v = view(len_kv, heads_kv),
                     out = view(len_q, heads);
    const std::string previous = set_device("emulator:sm_90a");
    const std::string text = explain_flash_attention(q, k, v, out, {}, options);
    set_device(previous);
    return json::parse(text);
  }
  std::string tile() const { return explained()["config"]; }
};

json entry_json(const json& config) {
  return {{"op", "flash_attention"}, {"dtype", "bfloat16"}, {"mask", "causal"},
          {"head_dim", 128},         {"batch", 2},          {"heads", 16},
          {"len_q", 2048},           {"config", config},    {"us", 12.5}};
}

json tile_json(int block_q, int block_kv, int stages) {
  return {{"block_q", block_q}, {"block_kv", block_kv}, {"stages", stages}};
}

// A file that is removed with the object; the process has no table before it or after it.
class EntryFile {
 public:
  EntryFile() { set_tuning(""); }
  ~EntryFile() {
    set_tuning("");
    std::filesystem::remove(path());
  }
  std::string path() const {
    return (std::filesystem::temp_directory_path() /
            ("kiln-attention-tuning-" + std::to_string(getpid()) + ".json"))
        .string();
  }
  void use(const json& entry) const {
    const json table{{"schema", 1}, {"arch", "sm_90"}, {"sm_count", 132}, {"entries", {entry}}};
    std::ofstream(path()) << table.dump();
    set_tuning(path());
  }
  void use(const char* field, const json& value) const {
    json entry = entry_json(kNarrow);
    entry[field] = value;
    use(entry);
  }

  const json kNarrow = tile_json(128, 128, 2), kWide = tile_json(192, 80, 2);
};

TunedAttention measured_at(int len_q, int len_kv) { return {{.head_dim = 64}, len_q, len_kv, {}}; }

}  // namespace

TEST_CASE("attention's tuning: the nearest lengths that round up to the same powers of two") {
  const AttentionTuning tuning({measured_at(1024, 1024), measured_at(600, 1024),
                                measured_at(600, 600), measured_at(512, 4096)});
  const auto found = [&](int len_q, int len_kv) {
    const TunedAttention* entry = tuning.find({.head_dim = 64}, len_q, len_kv);
    return entry ? std::pair(entry->len_q, entry->len_kv) : std::pair(0, 0);
  };
  CHECK(found(1024, 1024) == std::pair(1024, 1024));
  CHECK(found(600, 1000) == std::pair(600, 1024));
  CHECK(found(513, 513) == std::pair(600, 600));
  CHECK(found(600, 812) == std::pair(600, 1024));  // as near as 600: the longer
  CHECK(found(512, 512) == std::pair(0, 0));
  CHECK(found(300, 3000) == std::pair(512, 4096));
  CHECK(found(300, 2048) == std::pair(0, 0));
  CHECK(tuning.find({.head_dim = 128}, 1024, 1024) == nullptr);
  CHECK(AttentionTuning({}).find({.head_dim = 64}, 1024, 1024) == nullptr);
}

TEST_CASE("attention's tuning: calls follow the table and say so") {
  const EntryFile file;
  const Call call;
  const json model = call.explained();
  REQUIRE(model["config"] == "192x80x2");
  file.use(entry_json(file.kNarrow));
  const json tuned = call.explained();
  CHECK(tuned["path"] == "sm_90a");
  CHECK(tuned["config"] == "128x128x2");
  CHECK(tuned["why"].back() == "tile of the tuning table " + file.path() +
                                   ": the fastest measured at len_q = 2048, len_kv = 2048");
  CHECK(Call{.len_q = 1100, .len_kv = 1100}.tile() == "128x128x2");
  CHECK(Call{.batch = 1, .heads = 32, .heads_kv = 32}.tile() == "128x128x2");
  file.use(entry_json(file.kWide));
  CHECK(call.tile() == "192x80x2");
  set_tuning("");
  CHECK(call.explained() == model);
}

TEST_CASE("attention's tuning: other problems have the built-in choice") {
  const EntryFile file;
  file.use(entry_json(file.kNarrow));
  REQUIRE(Call{}.tile() == "128x128x2");
  for (const Call& other :
       {Call{.batch = 3}, Call{.len_q = 4096}, Call{.len_kv = 4096}, Call{.heads = 32},
        Call{.heads_kv = 4}, Call{.head_dim = 120}, Call{.options = {}},
        Call{.options = {.causal = true, .window_left = 1800}},
        Call{.options = {.causal = true, .softcap = 30.0f}}}) {
    const json explained = other.explained();
    CHECK(explained["why"].dump().find("tuning table") == std::string::npos);
  }
  for (const auto& [field, value] :
       {std::pair<const char*, json>{"dtype", "float16"}, {"head_dim_v", 64}, {"heads_kv", 8}}) {
    file.use(field, value);
    CHECK(Call{}.tile() == "192x80x2");
  }
}

TEST_CASE("attention's tuning: a window is found by the keys that a query sees") {
  const EntryFile file;
  const Call call{.options = {.causal = true, .window_left = 1999}};
  REQUIRE(call.tile() == "192x80x2");
  json entry = entry_json(file.kNarrow);
  entry["mask"] = "window";
  entry["keys"] = 2000;
  file.use(entry);
  CHECK(call.tile() == "128x128x2");
  CHECK(Call{.options = {.causal = true, .window_left = 1998}}.tile() == "192x80x2");
  CHECK(Call{}.tile() == "192x80x2");
}

TEST_CASE("attention's tuning: rows that share keys take the number of CTAs, as far as keys go") {
  const EntryFile file;
  const Call call{.batch = 1, .len_q = 512, .len_kv = 16384, .heads = 4, .heads_kv = 4};
  json entry = entry_json(file.kWide);
  entry.update({{"batch", 1}, {"heads", 4}, {"len_q", 512}, {"len_kv", 16384}});
  for (const auto& [wanted, given] : {std::pair(3, 3), {1000, 25}}) {
    entry["config"]["splits"] = wanted;
    file.use(entry);
    CHECK(call.explained()["config"] == "192x80x2 split");
    CHECK(call.explained()["splits"] == given);
  }
  entry["config"].erase("splits");
  file.use(entry);
  CHECK(call.explained()["splits"] == 1);
  CHECK(call.tile() == "192x80x2");
}

TEST_CASE("attention's tuning: a row that does not serve the call is ignored") {
  const EntryFile file;
  file.use(entry_json(tile_json(192, 128, 2)));  // for head dims up to 64
  CHECK(Call{}.tile() == "192x80x2");
  file.use(entry_json(tile_json(77, 80, 2)));
  CHECK(Call{}.tile() == "192x80x2");
  json split = entry_json(file.kNarrow);
  split["config"]["splits"] = 2;  // of 512 keys, too few to share
  split.update({{"len_q", 512}, {"len_kv", 512}});
  file.use(split);
  CHECK(Call{.len_q = 512, .len_kv = 512}.explained()["splits"] == 1);
}

TEST_CASE("attention's tuning: a malformed entry is one error") {
  const EntryFile file;
  const auto refusal = [&](const char* field, const json& value) -> std::string {
    try {
      file.use(field, value);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  for (const char* field :
       {"head_dim", "head_dim_v", "batch", "heads", "heads_kv", "len_q", "len_kv"}) {
    CHECK(refusal(field, 0).ends_with(std::string("entry 1: field '") + field +
                                      "' must be a whole number from 1 on, got 0"));
  }
  CHECK(refusal("dtype", "float32").ends_with("must be float16 or bfloat16, got 'float32'"));
  CHECK(refusal("mask", "full")
            .ends_with("must be none, causal, window, causal_each or tree, got 'full'"));
  CHECK(refusal("mask", "window").ends_with("field 'keys' is missing"));
  CHECK(refusal("config", json::object()).ends_with("field 'block_q' is missing"));
}
