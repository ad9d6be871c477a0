// One property of a kernel as a row of data: where it is kept, what it is called, which values it
// has. A spec's JSON, describe(), the command line's flags, the schema and the pages are all read
// from a family's list of these.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "jit/op/names.h"
#include "jit/op/specialization.h"

namespace kiln {

enum class FieldKind : std::uint8_t {
  flag,        // a bool
  choice,      // a byte by one of the names in `values`, or what get() and set() make of a name
  integer,     // a std::uint16_t of the traits, an int of a config row
  variant,     // a user's variant; the traits keep its digest
  expression,  // a user's C++ expression; likewise
};

// When describe() mentions a property.
enum class Says : std::uint8_t { never, always, when_set, when_unset };

struct Field {
  const char* name;  // in a spec; on the command line with dashes
  FieldKind kind;
  std::uint16_t offset = 0;            // of the traits, or of the config row
  std::span<const Named> values = {};  // of a choice, in the order that messages list them
  const char* otherwise = "";  // default: a name, a number, "true"; "" = the family settles it
  const char* help = "";       // for the schema, the pages and --help
  const char* says = "";       // in describe(); {} stands for the value
  Says when = Says::never;
  const char* flag = "";   // where it is not --name: "--unaligned" turns a default of true off
  bool flag_each = false;  // each value but the default is a flag of its own: --causal, --window
  bool null_if_unset = false;  // the value 0 is null in JSON
  bool required = false;
  const char* unset_reason = "";          // what an explanation adds where the value is 0
  int least = 0, most = 0, multiple = 1;  // of an integer of the traits
  int also = 0;                           // a value that it may have beyond `most`; 0: none
  // Where a property is not simply the bytes at `offset`.
  bool (*applies)(const Traits&) = nullptr;  // else it is null in JSON and not described
  std::string (*get)(const Traits&) = nullptr;
  void (*set)(Traits&, std::string_view) = nullptr;
  std::string (*tell)(const Traits&) = nullptr;  // in describe(), instead of `says`; may be ""
};

// The bytes of a field of `base`: of traits or of a config row.
inline std::uint8_t byte_at(const void* base, const Field& field) {
  return static_cast<const std::uint8_t*>(base)[field.offset];
}

// Traits as the struct of their family, for get, set and applies.
template <class T>
T as(const Traits& traits) {
  return std::bit_cast<T>(traits);
}

}  // namespace kiln
