// Reads one JSON object field by field, by the families' descriptions of their fields.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "jit/op/family.h"

namespace kiln {

// finish() refuses the fields that were not read.
class SpecFields {
 public:
  explicit SpecFields(const nlohmann::json& object) : object_(object) {}

  // Null if the field is absent or null.
  const nlohmann::json* find(const char* field);
  // The next functions require that the field is there. All throw std::invalid_argument.
  bool boolean(const char* field, const nlohmann::json& value) const;
  int integer(const char* field, const nlohmann::json& value) const;
  std::string text(const char* field, const nlohmann::json& value) const;
  void finish() const;

  // Writes a property of the traits: the value in the spec, or the default.
  void read(const Field& field, Traits& traits);

 private:
  void read_integer(const Field& field, const nlohmann::json& value, Traits& traits);
  void read_choice(const Field& field, const std::string& name, Traits& traits);

  const nlohmann::json& object_;
  std::set<std::string> seen_;
};

}  // namespace kiln
