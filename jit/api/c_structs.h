// The structs of kiln/c.h as those of the C++ API. All throw std::invalid_argument for what no C++
// value could be: a rank or a number that no enumeration has, a struct_size that was not set.
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "jit/op/checks.h"
#include "kiln/c.h"
#include "kiln/c_epilogue.h"
#include "kiln/kiln.h"

namespace kiln {

// Larger ones are not structs of a later Kiln but memory that nobody has set.
inline constexpr std::size_t kLargestStruct = 4096;
inline constexpr std::size_t kFieldBytes = 8;  // no field crosses a multiple of it

// The caller's struct as this library knows it. Fields that an older caller's header did not have
// are zero, the default; those of a later header that this library does not have must be.
template <class Struct>
Struct copy_of(const Struct* given, const char* name) {
  const std::size_t size = given->struct_size;
  if (size < kFieldBytes || size % kFieldBytes != 0 || size > kLargestStruct) {
    throw std::invalid_argument(std::string(name) + ": struct_size must be sizeof(" + name +
                                "), got " + std::to_string(size) + "; set it before the call");
  }
  Struct known{};
  std::memcpy(static_cast<void*>(&known), given, std::min(size, sizeof(Struct)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + std::min(size, sizeof(Struct)), bytes + size,
                  [](unsigned char byte) { return byte != 0; })) {
    throw std::invalid_argument(std::string(name) + ": a field behind the first " +
                                std::to_string(sizeof(Struct)) +
                                " bytes is set, which this version of Kiln does not have; leave it "
                                "zero or link a later libkiln");
  }
  return known;
}

inline void check_reserved(const char* name, std::int32_t value) {
  if (value == 0) return;
  throw std::invalid_argument(std::string(name) + ": reserved must be 0, got " +
                              std::to_string(value) + "; start from a zeroed struct");
}

// `field` is appended to the name: ".dtype" of a tensor.
template <class Enum>
Enum enum_of(Subject subject, std::int32_t value, Enum last, const char* field = "") {
  if (value >= 0 && value <= static_cast<std::int32_t>(last)) return static_cast<Enum>(value);
  throw_value({subject.op, (subject.name + std::string(field)).c_str()},
              "must be one of the values that kiln/c.h lists, 0 to " +
                  std::to_string(static_cast<std::int32_t>(last)) + ", got " +
                  std::to_string(value));
}

// A null tensor is one that is not given.
TensorView view_of(const char* op, const char* name, const kiln_tensor* tensor);

// Null options are the defaults. Views, texts and the variant stay the caller's. `op` is what
// messages name. They are defined beside the operations, in c_attention.cpp, c_varlen.cpp and
// c_gemm.cpp.
AttentionOptions options_of(const kiln_attention_options* options,
                            const char* op = "flash_attention");
VarlenOptions options_of(const kiln_varlen_options* options);
KvCacheOptions options_of(const kiln_kvcache_options* options);
SdpaOptions options_of(const kiln_sdpa_options* options);
GemmOptions options_of(const kiln_gemm_options* options);

VariantDefinition definition_of(const kiln_variant_definition* definition);
EpilogueDefinition definition_of(const kiln_epilogue_definition* definition);
// The tensors that are bound to one. `function` is what messages name.
std::vector<TensorView> bound_views(const char* function, const kiln_tensor* tensors,
                                    std::size_t count);

}  // namespace kiln

struct kiln_bound_variant {
  kiln::BoundVariant variant;
};
struct kiln_bound_epilogue {
  kiln::BoundEpilogue epilogue;
};
