// The file of a measured table, as `kiln tune gemm` writes it: docs/tuning.md lists its fields.
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "jit/gemm/tuning.h"
#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "jit/op/json_text.h"
#include "jit/op/whole_file.h"

namespace kiln {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;

// One object of the file, with its place for messages. Fields that nobody asks for are let be: the
// file also says what was measured.
class Part {
 public:
  Part(const json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object_.is_object()) refuse("must be an object");
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument("tuning table " + place_ + ": " + what);
  }
  const json& at(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end()) refuse(std::string("field '") + field + "' is missing");
    return *found;
  }
  int integer(const char* field, int least) const {
    const json& value = at(field);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <= std::numeric_limits<int>::max()) &&
                      value.get<std::int64_t>() >= least;
    if (!fits) {
      refuse(std::string("field '") + field + "' must be a whole number from " +
             std::to_string(least) + " on, got " + value.dump());
    }
    return value.get<int>();
  }
  int integer_or(const char* field, int least, int otherwise) const {
    return object_.contains(field) ? integer(field, least) : otherwise;
  }
  std::string text(const char* field) const {
    const json& value = at(field);
    if (!value.is_string()) {
      refuse(std::string("field '") + field + "' must be a string, got " + value.dump());
    }
    return value.get<std::string>();
  }
  std::string text_or(const char* field, const char* otherwise) const {
    return object_.contains(field) ? text(field) : otherwise;
  }
  DType dtype(const char* field) const {
    const std::string given = text(field);
    for (const DType dtype :
         {DType::f16, DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2}) {
      if (given == name(dtype)) return dtype;
    }
    refuse(std::string("field '") + field + "' must be a dtype of gemm, got '" + given + "'");
  }
  Part part(const char* field) const { return Part(at(field), place_ + ", field '" + field + "'"); }
  const std::string& place() const { return place_; }

 private:
  const json& object_;
  std::string place_;
};

void read_layout(const Part& entry, TunedKey& key) {
  const std::string layout = entry.text("layout");
  if (layout.size() != 2 || layout.find_first_not_of("nt") != std::string::npos) {
    entry.refuse("field 'layout' must be nn, nt, tn or tt, got '" + layout + "'");
  }
  key.major_a = layout[0] == 'n' ? Major::k : Major::mn;
  key.major_b = layout[1] == 't' ? Major::k : Major::mn;
}

// `device`: what all entries have in common.
TunedGemm read_entry(const Part& entry, const TunedKey& device) {
  TunedGemm tuned;
  tuned.key = device;
  tuned.key.input = entry.dtype("dtype");
  tuned.key.output_bytes = size_of(entry.dtype("out_dtype"));
  read_layout(entry, tuned.key);
  const std::string precision = entry.text_or("precision", "full");
  if (precision != "full" && precision != "fast") {
    entry.refuse("field 'precision' must be full or fast, got '" + precision + "'");
  }
  tuned.key.fast = precision == "fast";
  tuned.m = entry.integer("m", 1);
  tuned.key.n = entry.integer("n", 1);
  tuned.key.k = entry.integer("k", 1);
  tuned.key.batch = entry.integer_or("batch", 1, 1);
  const Part config = entry.part("config");
  tuned.tile = {config.integer("block_m", 1),       config.integer("block_n", 1),
                config.integer("block_k", 1),       config.integer("stages", 1),
                config.integer_or("cluster", 0, 0), config.integer_or("splits", 0, 0)};
  return tuned;
}

TunedKey read_device(const Part& file) {
  TunedKey device;
  try {
    device.arch = arch_index(parse_arch(file.text("arch")));
  } catch (const std::invalid_argument& error) {
    file.refuse(std::string("field 'arch': ") + error.what());
  }
  device.sm_count = file.integer("sm_count", 1);
  return device;
}

}  // namespace

GemmTuning read_gemm_tuning(const std::string& path) {
  const auto text = read_whole_file(path);
  if (!text) throw std::invalid_argument("tuning table " + path + ": the file cannot be read");
  const JsonText parsed = parse_json(*text);
  if (!parsed.value) {
    throw std::invalid_argument("tuning table " + path + ": the file " + parsed.fault +
                                "; name a file that kiln tune gemm has written");
  }
  const Part file(*parsed.value, path);
  if (const int schema = file.integer("schema", 1); schema != kSchema) {
    file.refuse("has schema " + std::to_string(schema) + ", and this version of Kiln reads " +
                std::to_string(kSchema) + "; measure again with kiln tune gemm");
  }
  const TunedKey device = read_device(file);
  const json& list = file.at("entries");
  if (!list.is_array()) file.refuse("field 'entries' must be an array");
  std::vector<TunedGemm> entries;
  for (const json& entry : list) {
    const std::string place = path + ", entry " + std::to_string(entries.size() + 1);
    entries.push_back(read_entry(Part(entry, place), device));
  }
  return GemmTuning(path, std::move(entries));
}

}  // namespace kiln
