// The file of a measured table, as `kiln tune` writes it: docs/tuning.md lists its fields.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "jit/op/arch.h"
#include "jit/op/family.h"
#include "jit/op/json_text.h"
#include "jit/op/tuning.h"

namespace kiln {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;

TuningDevice read_device(const TuningPart& file) {
  TuningDevice device;
  try {
    device.arch = arch_index(parse_arch(file.text("arch")));
  } catch (const std::invalid_argument& error) {
    file.refuse(std::string("field 'arch': ") + error.what());
  }
  device.sm_count = file.integer("sm_count", 1);
  return device;
}

// Returns the operation that the field 'op' names, or the one that reads entries without it.
const Family* family_of(const TuningPart& entry, bool is_named) {
  const std::string name = is_named ? entry.text("op") : "";
  for (const Family* family : families()) {
    if (family->tuning == nullptr) continue;
    if (is_named ? family->name == name : family->tuning->unnamed) return family;
  }
  std::string names;
  for (const Family* family : families()) {
    if (family->tuning != nullptr)
      names += (names.empty() ? "" : " or ") + std::string(family->name);
  }
  entry.refuse("field 'op' must be " + names + ", got '" + name + "'");
}

}  // namespace

TuningPart::TuningPart(const json& object, std::string place)
    : object_(&object), place_(std::move(place)) {
  if (!object_->is_object()) refuse("must be an object");
}

void TuningPart::refuse(const std::string& what) const {
  throw std::invalid_argument("tuning table " + place_ + ": " + what);
}

const json& TuningPart::at(const char* field) const {
  const auto found = object_->find(field);
  if (found == object_->end()) refuse(std::string("field '") + field + "' is missing");
  return *found;
}

int TuningPart::integer(const char* field, int least) const {
  const json& value = at(field);
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() ||
       value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<int>::max()}) &&
      value.get<std::int64_t>() >= least;
  if (!fits) {
    refuse(std::string("field '") + field + "' must be a whole number from " +
           std::to_string(least) + " on, got " + value.dump());
  }
  return value.get<int>();
}

int TuningPart::integer_or(const char* field, int least, int otherwise) const {
  return object_->contains(field) ? integer(field, least) : otherwise;
}

std::string TuningPart::text(const char* field) const {
  const json& value = at(field);
  if (!value.is_string()) {
    refuse(std::string("field '") + field + "' must be a string, got " + value.dump());
  }
  return value.get<std::string>();
}

std::string TuningPart::text_or(const char* field, const char* otherwise) const {
  return object_->contains(field) ? text(field) : otherwise;
}

std::uint8_t TuningPart::choice(const char* field, std::span<const Named> values,
                                const char* otherwise) const {
  const std::string given = otherwise == nullptr ? text(field) : text_or(field, otherwise);
  const auto value = value_of(values, given);
  if (!value) {
    refuse(std::string("field '") + field + "' must be " + choices_text(values) + ", got '" +
           given + "'");
  }
  return *value;
}

TuningPart TuningPart::part(const char* field) const {
  return TuningPart(at(field), place_ + ", field '" + field + "'");
}

TuningTable::TuningTable(std::string path, std::string text)
    : path_(std::move(path)), text_(std::move(text)) {
  const JsonText parsed = parse_json(text_);
  if (!parsed.value) {
    throw std::invalid_argument("tuning table " + path_ + ": the file " + parsed.fault +
                                "; name a file that kiln tune has written");
  }
  const TuningPart file(*parsed.value, path_);
  if (const int schema = file.integer("schema", 1); schema != kSchema) {
    file.refuse("has schema " + std::to_string(schema) + ", and this version of Kiln reads " +
                std::to_string(kSchema) + "; measure again with kiln tune");
  }
  const TuningDevice device = read_device(file);
  const json& list = file.at("entries");
  if (!list.is_array()) file.refuse("field 'entries' must be an array");
  std::vector<std::pair<const Family*, std::vector<TuningPart>>> parts;
  std::size_t number = 0;
  for (const json& object : list) {
    TuningPart entry(object, path_ + ", entry " + std::to_string(++number));
    const Family* family = family_of(entry, object.contains("op"));
    auto own = std::find_if(parts.begin(), parts.end(),
                            [&](const auto& known) { return known.first == family; });
    if (own == parts.end()) {
      parts.emplace_back(family, std::vector<TuningPart>{});
      own = parts.end() - 1;
    }
    own->second.push_back(std::move(entry));
  }
  for (const auto& [family, entries] : parts) {
    operations_.emplace_back(family, family->tuning->read(entries, device));
  }
}

const TunedEntries* TuningTable::of(const Family& family) const {
  for (const auto& [known, entries] : operations_) {
    if (known == &family) return entries.get();
  }
  return nullptr;
}

}  // namespace kiln
