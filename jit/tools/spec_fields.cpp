#include "jit/tools/spec_fields.h"

#include <cstring>
#include <limits>

namespace kiln {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_type(const char* field, const char* expected, const json& got) {
  refuse_field(field,
               std::string("has the wrong type: it must be ") + expected + ", got " + got.dump());
}

unsigned char* bytes_of(Traits& traits) { return reinterpret_cast<unsigned char*>(traits.data()); }

std::string range_text(const Field& field) {
  return "a multiple of " + std::to_string(field.multiple) + " up to " +
         std::to_string(field.most) +
         (field.also != 0 ? ", or " + std::to_string(field.also) : std::string());
}

}  // namespace

const json* SpecFields::find(const char* field) {
  seen_.insert(field);
  auto it = object_.find(field);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool SpecFields::boolean(const char* field, const json& value) const {
  if (!value.is_boolean()) refuse_type(field, "true or false", value);
  return value.get<bool>();
}

int SpecFields::integer(const char* field, const json& value) const {
  // 64.5 and 2^32 + 64 would both become 64.
  const bool fits =
      value.is_number_unsigned()
          ? value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<int>::max()}
          : value.is_number_integer() &&
                value.get<std::int64_t>() >= std::numeric_limits<int>::min() &&
                value.get<std::int64_t>() <= std::numeric_limits<int>::max();
  if (!fits) refuse_type(field, "a whole number", value);
  return value.get<int>();
}

std::string SpecFields::text(const char* field, const json& value) const {
  if (!value.is_string()) refuse_type(field, "a string", value);
  return value.get<std::string>();
}

void SpecFields::finish() const {
  for (const auto& item : object_.items()) {
    if (!seen_.contains(item.key()))
      refuse_spec("unknown field '" + item.key() + "'; docs/prewarm.md lists the fields");
  }
}

void SpecFields::read(const Field& field, Traits& traits) {
  const json* value = find(field.name);
  const std::string otherwise = field.otherwise;
  switch (field.kind) {
    case FieldKind::flag:
      bytes_of(traits)[field.offset] =
          value ? boolean(field.name, *value) : static_cast<unsigned char>(otherwise == "true");
      return;
    case FieldKind::integer:
      if (value) {
        read_integer(field, *value, traits);
      } else if (field.required) {
        refuse_field(field.name, "is missing; give " + range_text(field));
      }
      return;
    case FieldKind::choice:
      if (value) {
        read_choice(field, text(field.name, *value), traits);
      } else if (!otherwise.empty()) {
        read_choice(field, otherwise, traits);
      }
      return;
    case FieldKind::variant:
    case FieldKind::expression:
      return;  // these are the user's texts, which the spec owns
  }
}

void SpecFields::read_integer(const Field& field, const json& value, Traits& traits) {
  const int number = integer(field.name, value);
  const bool in_range =
      number >= field.least && number <= field.most && number % field.multiple == 0;
  if (!in_range && (field.also == 0 || number != field.also)) {
    refuse_field(field.name, "must be " + range_text(field) + ", got " + std::to_string(number));
  }
  const auto narrow = static_cast<std::uint16_t>(number);
  std::memcpy(bytes_of(traits) + field.offset, &narrow, sizeof narrow);
}

void SpecFields::read_choice(const Field& field, const std::string& name, Traits& traits) {
  const auto value = value_of(field.values, name);
  if (!value) {
    refuse_field(field.name, "must be " + choices_text(field.values) + ", got '" + name + "'");
  }
  if (field.set) {
    field.set(traits, name);
  } else {
    bytes_of(traits)[field.offset] = *value;
  }
}

}  // namespace kiln
