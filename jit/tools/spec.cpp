#include "jit/tools/spec.h"

#include <cstring>

#include "jit/op/json_text.h"
#include "jit/op/variant_json.h"
#include "jit/tools/spec_fields.h"

namespace kiln {
namespace {

using nlohmann::json;

json field_to_json(const Field& field, const Traits& traits, const UserTexts& texts) {
  if (field.applies && !field.applies(traits)) return nullptr;
  const auto* base = reinterpret_cast<const unsigned char*>(traits.data());
  switch (field.kind) {
    case FieldKind::flag:
      return byte_at(base, field) != 0;
    case FieldKind::integer: {
      std::uint16_t number;
      std::memcpy(&number, base + field.offset, sizeof number);
      return number;
    }
    case FieldKind::choice:
      if (field.get) return field.get(traits);
      if (field.null_if_unset && byte_at(base, field) == 0) return nullptr;
      return name_of(field.values, byte_at(base, field));
    case FieldKind::variant:
      return texts.variant ? variants_to_json(*texts.variant) : json();
    case FieldKind::expression:
      if (texts.epilogue_values != nullptr) return epilogue_to_json(*texts.epilogue_values);
      return texts.epilogue.empty() ? json() : json(std::string(texts.epilogue));
  }
  return nullptr;
}

json row_field_to_json(const Field& field, const void* row) {
  if (field.kind == FieldKind::flag) return byte_at(row, field) != 0;
  int number;
  std::memcpy(&number, static_cast<const char*>(row) + field.offset, sizeof number);
  return number;
}

// The row fields that a spec asks for. A template whose rows lack a property does not match it.
class Wanted {
 public:
  Wanted(SpecFields& fields, const Family& family) {
    for (const Template& kernel : family.templates) {
      for (const Field& field : kernel.row_fields) read(fields, field);
    }
  }

  bool names_tile() const { return names_tile_; }
  bool matches(const Specialization& spec) const {
    const json row = row_to_json(spec);
    for (const auto& [name, value] : values_.items()) {
      // A kernel of another family may belong to the call, whose rows have other fields.
      const auto own = row.find(name);
      if (own == row.end() ? value != json(false) : *own != value) return false;
    }
    return true;
  }

  // Every row field of the family; null or false if this template's rows do not have it.
  static json row_to_json(const Specialization& spec) {
    json row = json::object();
    for (const Template& kernel : spec.kernel().family->templates) {
      for (const Field& field : kernel.row_fields) {
        row[field.name] = field.kind == FieldKind::flag ? json(false) : json();
      }
    }
    for (const Field& field : spec.kernel().row_fields) {
      row[field.name] = row_field_to_json(field, spec.kernel().row(spec.row()));
    }
    return row;
  }

 private:
  void read(SpecFields& fields, const Field& field) {
    const json* value = fields.find(field.name);
    if (value == nullptr) return;
    if (field.kind == FieldKind::flag) {
      values_[field.name] = fields.boolean(field.name, *value);
      return;
    }
    const int size = fields.integer(field.name, *value);
    if (size < 1) {
      refuse_field(field.name, "must be a tile size from 1 on, got " + std::to_string(size));
    }
    values_[field.name] = size;
    names_tile_ = true;
  }

  json values_ = json::object();
  bool names_tile_ = false;
};

// The user's texts, which the spec owns.
void read_texts(SpecFields& fields, const Field& field, OwnedSpec& owned, Traits& traits) {
  const json* value = fields.find(field.name);
  if (value == nullptr) return;
  if (field.kind == FieldKind::expression) {
    if (!value->is_object()) {
      owned.epilogue = fields.text(field.name, *value);
      return;
    }
    auto definition = std::make_shared<EpilogueDefinition>(epilogue_from_json(*value));
    const Epilogue checked(*definition);
    owned.epilogue = definition->value;
    if (!definition->params.empty() || !definition->tensors.empty()) {
      owned.epilogue_values = std::move(definition);
    }
  } else if (field.kind == FieldKind::variant) {
    owned.variant = std::make_shared<const Variant>(variants_from_json(*value));
    std::memcpy(reinterpret_cast<unsigned char*>(traits.data()) + field.offset,
                owned.variant->digest().data(), sizeof(Digest128));
  }
}

std::string operation_names() {
  std::string names;
  for (std::size_t i = 0; i < families().size(); ++i) {
    names += (i == 0                       ? ""
              : i + 1 == families().size() ? " or "
                                           : ", ") +
             std::string(families()[i]->name);
  }
  return names;
}

const Family& family_of(SpecFields& fields) {
  const json* op = fields.find("op");
  const std::string name = op ? fields.text("op", *op) : "";
  if (const Family* family = find_family(name)) return *family;
  refuse_field("op", "must be " + operation_names() + ", got '" + name + "'");
}

void append_specs(const json& parsed, std::vector<json>& specs) {
  if (!parsed.is_array()) {
    specs.push_back(parsed);
    return;
  }
  for (const json& one : parsed) append_specs(one, specs);
}

}  // namespace

json spec_to_json(const Specialization& spec, const UserTexts& texts) {
  const Family& family = *spec.kernel().family;
  json result{{"op", family.name}};
  for (const Field& field : family.fields) {
    result[field.name] = field_to_json(field, spec.traits(), texts);
  }
  result.update(Wanted::row_to_json(spec));
  return result;
}

std::string spec_text(const Specialization& spec, const UserTexts& texts) {
  return spec_to_json(spec, texts).dump();
}

std::vector<OwnedSpec> specs_from_json(const json& spec, int arch) {
  if (!spec.is_object()) refuse_spec("must be an object, got " + spec.dump());
  SpecFields fields(spec);
  const Family& family = family_of(fields);
  OwnedSpec owned;
  Traits traits{};
  for (const Field& field : family.fields) {
    fields.read(field, traits);
    read_texts(fields, field, owned, traits);
  }
  const Wanted wanted(fields, family);
  fields.finish();
  if (family.settle) family.settle(traits, owned.texts(), arch);
  std::vector<OwnedSpec> specs;
  const Kernels which = wanted.names_tile() ? Kernels::all : Kernels::chosen;
  for (const Specialization& kernel : family.kernels(traits, arch, which)) {
    if (!wanted.matches(kernel)) continue;
    owned.spec = kernel;
    specs.push_back(owned);
  }
  if (specs.empty()) {
    refuse_spec(
        "its tile is not a row of the config table for these properties; leave the tile fields "
        "out, or take a row that kiln inspect lists");
  }
  return specs;
}

std::vector<json> parse_specs(const std::string& text) {
  const JsonText parsed = parse_json(text);
  if (!parsed.value) refuse_spec("the text " + parsed.fault);
  std::vector<json> specs;
  append_specs(*parsed.value, specs);
  return specs;
}

}  // namespace kiln
