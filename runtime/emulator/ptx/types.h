// The state spaces and scalar types of PTX.
#pragma once

#include <cstdint>
#include <string_view>

namespace kiln::runtime::emulator {

enum class Space : std::uint8_t { none, global, shared, local, constant, param };

enum class Type : std::uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  tf32,
  f32,
  f64,
  e4m3,
  e5m2,
  e4m3x2,
  e5m2x2,
  u16x2,
  s16x2,
  f32x2
};

enum class TypeClass : std::uint8_t {
  none,
  predicate,
  bits,
  unsigned_integer,
  signed_integer,
  real
};

struct TypeInfo {
  std::string_view name;
  std::uint8_t bits;
  TypeClass type_class;
};
const TypeInfo& info(Type type);
// Type::none for what is no type's name.
Type type_of(std::string_view name);

inline int bytes_of(Type type) { return info(type).bits / 8; }
inline bool is_signed(Type type) { return info(type).type_class == TypeClass::signed_integer; }

}  // namespace kiln::runtime::emulator
