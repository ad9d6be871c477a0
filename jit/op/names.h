// Values of enumerations by name: each list stands in one place, and JSON, command line, messages
// and device code read it from there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kiln/activation.h"
#include "kiln/tensor.h"

namespace kiln {

struct Named {
  const char* name;
  std::uint8_t value;

  template <class Enum>
  constexpr Named(const char* text, Enum which)
      : name(text), value(static_cast<std::uint8_t>(which)) {}
};

const char* name_of(std::span<const Named> list, std::uint8_t value);  // "" where none has it
std::optional<std::uint8_t> value_of(std::span<const Named> list, std::string_view name);
// "none, tensor or vector".
std::string choices_text(std::span<const Named> list);

template <class Enum>
const char* name_of(std::span<const Named> list, Enum value) {
  return name_of(list, static_cast<std::uint8_t>(value));
}

// Which dimension of a matrix is contiguous: K, or the other one.
enum class Major : std::uint8_t { k, mn };

// How tensors may be read or written: by elements alone; by boxes of a tensor map, as bases and
// strides are multiples of 16 bytes; or also by whole vectors of 16 bytes, of which their rows
// consist.
enum class Access : std::uint8_t { elements, boxes, vectors };

inline constexpr Named kAccessNames[] = {
    {"elements", Access::elements}, {"boxes", Access::boxes}, {"vectors", Access::vectors}};

// An activation of one input; the gated ones follow in kActivationNames.
inline constexpr Named kPlainActivationNames[] = {{"none", Activation::none},
                                                  {"relu", Activation::relu},
                                                  {"gelu", Activation::gelu},
                                                  {"gelu_tanh", Activation::gelu_tanh},
                                                  {"silu", Activation::silu}};
inline constexpr Named kActivationNames[] = {
    {"none", Activation::none},   {"relu", Activation::relu},
    {"gelu", Activation::gelu},   {"gelu_tanh", Activation::gelu_tanh},
    {"silu", Activation::silu},   {"swiglu", Activation::swiglu},
    {"geglu", Activation::geglu}, {"geglu_tanh", Activation::geglu_tanh}};

// Whether half of an activation's input are gates.
inline bool is_gated(Activation activation) { return activation >= Activation::swiglu; }

// Dtypes by the names that specs and messages use.
inline constexpr Named kHalfNames[] = {{"float16", DType::f16}, {"bfloat16", DType::bf16}};
inline constexpr Named kFloatNames[] = {
    {"float16", DType::f16}, {"bfloat16", DType::bf16}, {"float32", DType::f32}};
// Numbers of 16 bits are quantised to these.
inline constexpr Named kQuantizedNames[] = {
    {"float8_e4m3fn", DType::f8_e4m3}, {"float8_e5m2", DType::f8_e5m2}, {"int8", DType::i8}};
// Of outputs that are stored in 8 bits, too.
inline constexpr Named kOutputNames[] = {
    {"float16", DType::f16},           {"bfloat16", DType::bf16},       {"float32", DType::f32},
    {"float8_e4m3fn", DType::f8_e4m3}, {"float8_e5m2", DType::f8_e5m2}, {"int8", DType::i8}};
inline constexpr Named kOperandNames[] = {{"float16", DType::f16},
                                          {"bfloat16", DType::bf16},
                                          {"float32", DType::f32},
                                          {"float8_e4m3fn", DType::f8_e4m3},
                                          {"float8_e5m2", DType::f8_e5m2}};

}  // namespace kiln
