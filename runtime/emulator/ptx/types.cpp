#include "runtime/emulator/ptx/types.h"

#include <array>
#include <cstddef>

namespace kiln::runtime::emulator {
namespace {

using enum TypeClass;
// In the order of Type.
constexpr std::array kTypes = {
    TypeInfo{"", 0, none},
    TypeInfo{"pred", 1, predicate},
    TypeInfo{"b8", 8, bits},
    TypeInfo{"b16", 16, bits},
    TypeInfo{"b32", 32, bits},
    TypeInfo{"b64", 64, bits},
    TypeInfo{"b128", 128, bits},
    TypeInfo{"u8", 8, unsigned_integer},
    TypeInfo{"u16", 16, unsigned_integer},
    TypeInfo{"u32", 32, unsigned_integer},
    TypeInfo{"u64", 64, unsigned_integer},
    TypeInfo{"s8", 8, signed_integer},
    TypeInfo{"s16", 16, signed_integer},
    TypeInfo{"s32", 32, signed_integer},
    TypeInfo{"s64", 64, signed_integer},
    TypeInfo{"f16", 16, real},
    TypeInfo{"f16x2", 32, real},
    TypeInfo{"bf16", 16, real},
    TypeInfo{"bf16x2", 32, real},
    TypeInfo{"tf32", 32, real},
    TypeInfo{"f32", 32, real},
    TypeInfo{"f64", 64, real},
    TypeInfo{"e4m3", 8, real},
    TypeInfo{"e5m2", 8, real},
    TypeInfo{"e4m3x2", 16, real},
    TypeInfo{"e5m2x2", 16, real},
    TypeInfo{"u16x2", 32, unsigned_integer},
    TypeInfo{"s16x2", 32, signed_integer},
    TypeInfo{"f32x2", 64, real},
};
static_assert(kTypes.size() == static_cast<std::size_t>(Type::f32x2) + 1);

}  // namespace

const TypeInfo& info(Type type) { return kTypes[static_cast<std::size_t>(type)]; }

Type type_of(std::string_view name) {
  for (std::size_t i = 1; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<Type>(i);
  }
  return Type::none;
}

}  // namespace kiln::runtime::emulator
