// What users declare for their expressions: names, the types of parameters and tensors, and the
// words of the argument block that bound values fill.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "jit/op/checks.h"
#include "jit/op/launch.h"
#include "kiln/variant.h"

namespace kiln {

// The declarations of one definition.
struct UserDeclarations {
  const char* kind;         // "Variant"
  const std::string& name;  // the label in messages
  const std::vector<VariantParam>& params;
  const std::vector<VariantTensor>& tensors;
  std::span<const char* const> reserved;  // what expressions have names for already
  std::span<const char* const> indices;   // which a dimension may have, beside a whole number and *
  const char* indices_text;               // for messages: "b, h, row"
};

// "Variant 'name': what", as std::invalid_argument.
[[noreturn]] void refuse_declaration(const UserDeclarations& d, const std::string& what);

// Throws std::invalid_argument where there are too many, or names or types that cannot be.
void check_declarations(const UserDeclarations& d);

// What of the declarations is of the identity of an expression.
std::string signature_of(const UserDeclarations& d);

// Throws std::invalid_argument unless a value is a whole number where the parameter is.
void check_param_value(const UserDeclarations& d, const VariantParam& param, double value);

// A dimension whose index the expression computes: of an extent that is given, or of any.
bool is_free_index(const std::string& index);

// Whether expressions read the tensor at indices of their own, as kiln::VariantTable: a dimension
// is a whole number or "*".
bool is_table(const VariantTensor& tensor);

// Throws std::invalid_argument unless a free dimension has the declared extent, of 32 bits.
void check_free_dimension(Subject subject, const std::string& index, const TensorView& view,
                          int dimension);
// Device, dtype, memory, rank and the last stride of a bound tensor.
void check_bound_tensor(Subject subject, const VariantTensor& declared, const TensorView& view,
                        const Problem& problem);

// Append what the Slots of the expression's struct hold: a value; a tensor's pointer, strides and,
// of a table, extents.
void add_param(const VariantParam& param, double value, CallArguments& arguments);
void add_bound_tensor(const char* name, const TensorView& view, bool has_extents, Problem& problem,
                      Use use = Use::read);

// Return source: the struct of these Slots, in the order in which the words are appended (a member
// of its own, so that a parameter may be called like a function; empty, it would still take a
// byte); then the local names of the values. `every_tensor`: the template of all tensors; null:
// that of each kind. `wide`: of that kind, with WideProduct of templates/base/table.cuh.
std::string slot_members(const std::vector<VariantParam>& params,
                         const std::vector<VariantTensor>& tensors,
                         const char* every_tensor = nullptr, bool wide = false);
std::string param_names(const std::vector<VariantParam>& params);
std::string table_name(const VariantTensor& tensor);

}  // namespace kiln
