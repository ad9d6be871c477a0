#include "jit/op/family.h"

#include <cstring>
#include <stdexcept>

namespace kiln {
namespace {

// The value as describe() shows it, and whether it is set at all.
struct Shown {
  bool set = false;
  std::string text;
};

// "alibi + window" for a list.
std::string names_of(const Variant& variant) {
  std::string names;
  for (const auto& definition : variant.definitions()) {
    names += (names.empty() ? "" : " + ") + definition->name;
  }
  return names;
}

bool is_zero(const void* bytes, std::size_t count) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) {
    if (at[i] != 0) return false;
  }
  return true;
}

Shown shown(const Field& field, const Traits& traits, const UserTexts& texts) {
  const auto* base = reinterpret_cast<const unsigned char*>(traits.data());
  switch (field.kind) {
    case FieldKind::flag:
      return {byte_at(base, field) != 0, ""};
    case FieldKind::integer: {
      std::uint16_t number;
      std::memcpy(&number, base + field.offset, sizeof number);
      return {number != 0, std::to_string(number)};
    }
    case FieldKind::choice:
      if (field.get) return {true, field.get(traits)};
      return {byte_at(base, field) != 0, name_of(field.values, byte_at(base, field))};
    case FieldKind::variant:
      return {!is_zero(base + field.offset, sizeof(Digest128)),
              texts.variant ? names_of(*texts.variant) : ""};
    case FieldKind::expression:
      return {!is_zero(base + field.offset, sizeof(Digest128)), std::string(texts.epilogue)};
  }
  return {};
}

bool is_said(const Field& field, bool set) {
  return field.when == Says::always || (field.when == Says::when_set && set) ||
         (field.when == Says::when_unset && !set);
}

}  // namespace

const Family* find_family(std::string_view name) {
  for (const Family* family : families()) {
    if (name == family->name) return family;
  }
  return nullptr;
}

std::vector<Specialization> all_samples(int arch) {
  std::vector<Specialization> all;
  for (const Family* family : families()) {
    const auto samples = family->samples(arch);
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

std::string describe(const Specialization& spec, const UserTexts& texts) {
  const Template& kernel = spec.kernel();
  std::string text = kernel.family->name;
  for (const Field& field : kernel.family->fields) {
    if (field.tell) text += field.tell(spec.traits());
    if (field.when == Says::never || (field.applies && !field.applies(spec.traits()))) continue;
    const Shown value = shown(field, spec.traits(), texts);
    if (!is_said(field, value.set)) continue;
    std::string piece = field.says;
    if (const std::size_t at = piece.find("{}"); at != std::string::npos) {
      piece.replace(at, 2, value.text);
    }
    text += piece;
  }
  return text + ", tile " + kernel.tile(spec.row());
}

void refuse_spec(const std::string& what) { throw std::invalid_argument("spec: " + what); }

void refuse_field(const char* name, const std::string& what) {
  refuse_spec(std::string("field '") + name + "' " + what);
}

}  // namespace kiln
