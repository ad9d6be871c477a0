// The names of a mask's expression: their types, and what is known of their values over a tile.
#pragma once

#include <string>
#include <string_view>

#include "jit/op/expression.h"
#include "kiln/variant.h"

namespace kiln {

// As a resolver of parse_expression(). The type of a name of whose values nothing is known over a
// tile is unknown.
NamedType type_of_mask_name(const VariantDefinition& definition, std::string_view name);

// The same, and the types of the elements of tensors that are read at positions alone, whose bounds
// are known: see element_bounds.h. The text of a table's element, `doc(kv)`, is taken for a name.
NamedType type_of_mask_element(const VariantDefinition& definition, std::string_view name);

// at.q is q; a parameter or tensor keeps its name.
std::string plain_name(std::string_view name);

// An expression of device code: the interval of a name's values over the tile of `box`. Requires: a
// name of a known type.
std::string interval_of_name(const VariantDefinition& definition, std::string_view name,
                             const std::string& box);

// "tensor element 'doc'": names of which nothing is known; "" for others.
std::string why_unknown(const VariantDefinition& definition, std::string_view name);

}  // namespace kiln
