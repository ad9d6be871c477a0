// Specs: JSON objects that name kernels without tensors (python/kiln/data/spec.schema.json), which
// prewarm, preload, inspect and CompileDisabled use. Their fields are those of the families.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jit/op/family.h"

namespace kiln {

// A specialization with the user's texts, of which it holds only digests.
struct OwnedSpec {
  Specialization spec;
  std::shared_ptr<const Variant> variant;
  std::string epilogue;
  std::shared_ptr<const EpilogueDefinition> epilogue_values;

  UserTexts texts() const { return {variant.get(), epilogue, epilogue_values.get()}; }
};

// The spec of one kernel, which names its config row.
nlohmann::json spec_to_json(const Specialization& spec, const UserTexts& texts);

// Every kernel that a spec stands for on an arch: one, or one per config row when it names no tile.
// Throws std::invalid_argument naming the field.
std::vector<OwnedSpec> specs_from_json(const nlohmann::json& spec, int arch);

// The specs of a text that holds one object or an array of them. Nested arrays are joined, because
// a call of several kernels names them all in one.
std::vector<nlohmann::json> parse_specs(const std::string& text);

}  // namespace kiln
