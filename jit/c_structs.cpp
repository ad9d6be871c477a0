#include "jit/c_structs.h"

#include <algorithm>
#include <cstring>

#include "jit/argument_errors.h"
#include "jit/variant_json.h"

namespace kiln {
namespace {

// Larger ones are not structs of a later Kiln but memory that nobody has set.
constexpr std::size_t kLargestStruct = 4096;
constexpr std::size_t kFieldBytes = 8;  // no field crosses a multiple of it

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

void check_reserved(const char* name, std::int32_t value) {
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

std::string text_of(const char* text) { return text == nullptr ? std::string() : text; }

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") + 1 - first);
}

// "cap: f32; reach: i32": calls `add` with each name and type.
template <class Add>
void for_each_declaration(const char* field, const char* text, Add&& add) {
  std::string rest = trimmed(text_of(text));
  while (!rest.empty()) {
    const std::string one = rest.substr(0, rest.find(';'));
    rest = trimmed(rest.substr(std::min(rest.size(), one.size() + 1)));
    const std::size_t colon = one.find(':');
    if (colon == std::string::npos) {
      throw_value({"kiln_variant_definition", field},
                  "must be declarations such as \"cap: f32; reach: i32\", got '" + one + "'");
    }
    add(trimmed(one.substr(0, colon)), trimmed(one.substr(colon + 1)));
  }
}

#define KILN_SAME(c, cpp) static_assert(int(c) == int(cpp))
KILN_SAME(KILN_NONE, DType::none);
KILN_SAME(KILN_F16, DType::f16);
KILN_SAME(KILN_BF16, DType::bf16);
KILN_SAME(KILN_F32, DType::f32);
KILN_SAME(KILN_F64, DType::f64);
KILN_SAME(KILN_I32, DType::i32);
KILN_SAME(KILN_I64, DType::i64);
KILN_SAME(KILN_U8, DType::u8);
KILN_SAME(KILN_BOOL, DType::boolean);
KILN_SAME(KILN_F8_E4M3, DType::f8_e4m3);
KILN_SAME(KILN_F8_E5M2, DType::f8_e5m2);
KILN_SAME(KILN_CPU, DeviceType::cpu);
KILN_SAME(KILN_CUDA, DeviceType::cuda);
KILN_SAME(KILN_BSHD, AttentionLayout::bshd);
KILN_SAME(KILN_BHSD, AttentionLayout::bhsd);
KILN_SAME(KILN_NO_ACTIVATION, Activation::none);
KILN_SAME(KILN_RELU, Activation::relu);
KILN_SAME(KILN_GELU, Activation::gelu);
KILN_SAME(KILN_GELU_TANH, Activation::gelu_tanh);
KILN_SAME(KILN_SILU, Activation::silu);
KILN_SAME(KILN_SWIGLU, Activation::swiglu);
KILN_SAME(KILN_GEGLU, Activation::geglu);
KILN_SAME(KILN_GEGLU_TANH, Activation::geglu_tanh);
KILN_SAME(KILN_DEFAULT_GATE, Gate::none);
KILN_SAME(KILN_HALVES, Gate::halves);
KILN_SAME(KILN_INTERLEAVED, Gate::interleaved);
KILN_SAME(KILN_ACCUMULATE_F32, Accumulator::f32);
KILN_SAME(KILN_ACCUMULATE_F16, Accumulator::f16);
static_assert(KILN_MAX_RANK == kMaxRank);
#undef KILN_SAME

}  // namespace

TensorView view_of(const char* op, const char* name, const kiln_tensor* tensor) {
  TensorView view;
  if (tensor == nullptr) return view;
  if (tensor->rank < 0 || tensor->rank > kMaxRank) {
    throw_value({op, name}, "must have a rank of 0 to " + std::to_string(kMaxRank) + ", got " +
                                std::to_string(tensor->rank));
  }
  if (tensor->dtype == KILN_NONE) {
    throw_type({op, name}, "has no dtype; set it, or pass NULL for a tensor that is not given");
  }
  view.data = tensor->data;
  view.dtype = enum_of({op, name}, tensor->dtype, DType::f8_e5m2, ".dtype");
  view.device_type = enum_of({op, name}, tensor->device_type, DeviceType::cuda, ".device_type");
  view.device_ordinal = tensor->device_ordinal;
  view.rank = tensor->rank;
  std::copy_n(tensor->shape, kMaxRank, view.shape);
  std::copy_n(tensor->strides, kMaxRank, view.strides);
  return view;
}

AttentionOptions options_of(const kiln_attention_options* given) {
  AttentionOptions options;
  if (given == nullptr) return options;
  const char* const op = "flash_attention";
  const auto c = copy_of(given, "kiln_attention_options");
  options.causal = c.causal != 0;
  options.top_left = c.top_left != 0;
  options.layout = enum_of({op, "layout"}, c.layout, AttentionLayout::bhsd);
  if (c.window != nullptr) {
    options.window_left = c.window[0];
    options.window_right = c.window[1];
  }
  if (c.scale != nullptr) options.scale = *c.scale;
  options.softcap = c.softcap;
  options.sinks = view_of(op, "sinks", c.sinks);
  options.alibi_slopes = view_of(op, "alibi_slopes", c.alibi_slopes);
  options.attn_mask = view_of(op, "attn_mask", c.attn_mask);
  if (c.variant != nullptr) options.variant = &c.variant->variant;
  options.workspace = {c.allocate, c.allocate_context};
  return options;
}

SdpaOptions options_of(const kiln_sdpa_options* given) {
  SdpaOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_sdpa_options");
  options.is_causal = c.is_causal != 0;
  options.enable_gqa = c.enable_gqa != 0;
  if (c.scale != nullptr) options.scale = *c.scale;
  options.workspace = {c.allocate, c.allocate_context};
  return options;
}

GemmOptions options_of(const kiln_gemm_options* given) {
  GemmOptions options;
  if (given == nullptr) return options;
  const char* const op = "gemm";
  const auto c = copy_of(given, "kiln_gemm_options");
  check_reserved("kiln_gemm_options", c.reserved);
  options.trans_a = c.trans_a != 0;
  options.trans_b = c.trans_b != 0;
  options.bias = view_of(op, "bias", c.bias);
  options.residual = view_of(op, "residual", c.residual);
  options.scale_a = view_of(op, "scale_a", c.scale_a);
  options.scale_b = view_of(op, "scale_b", c.scale_b);
  options.activation = enum_of({op, "activation"}, c.activation, Activation::geglu_tanh);
  options.gate = enum_of({op, "gate"}, c.gate, Gate::interleaved);
  options.accumulator = enum_of({op, "accumulator"}, c.accumulator, Accumulator::f16);
  options.allow_tf32 = c.allow_tf32 != 0;
  options.fast = c.fast != 0;
  if (c.alpha != nullptr) options.alpha = *c.alpha;
  if (c.epilogue != nullptr) options.epilogue = c.epilogue;
  if (c.config != nullptr) {
    const kiln_gemm_tile& tile = *c.config;
    options.config = {tile.block_m, tile.block_n, tile.block_k,
                      tile.stages,  tile.cluster, tile.splits};
  }
  options.workspace = {c.allocate, c.allocate_context};
  return options;
}

VariantDefinition definition_of(const kiln_variant_definition* given) {
  if (given == nullptr) {
    throw std::invalid_argument("kiln_variant_create: definition must not be NULL");
  }
  const auto c = copy_of(given, "kiln_variant_definition");
  VariantDefinition definition;
  definition.name = text_of(c.name);
  definition.logits = text_of(c.logits);
  definition.mask = text_of(c.mask);
  definition.file_text = text_of(c.file_text);
  definition.file_name = text_of(c.file_name);
  for_each_declaration("params", c.params, [&](const std::string& name, const std::string& type) {
    definition.params.push_back({name, parse_short_dtype(type)});
  });
  for_each_declaration("tensors", c.tensors, [&](const std::string& name, const std::string& type) {
    definition.tensors.push_back(parse_tensor_declaration(name, type));
  });
  return definition;
}

}  // namespace kiln
