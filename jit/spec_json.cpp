#include "jit/spec_json.h"

#include <limits>
#include <set>

#include "jit/arch.h"
#include "jit/argument_errors.h"
#include "jit/config.h"
#include "jit/gemm_checks.h"
#include "jit/render_parts.h"
#include "jit/user_text.h"
#include "jit/variant_json.h"

namespace kiln {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("spec: " + what); }

// Reads the fields of one object; finish() refuses those that nobody asked for.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  // `otherwise` where the field is absent or null.
  bool boolean(const char* field, bool otherwise) {
    const json* value = object(field);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse_type(field, "true or false", *value);
    return value->get<bool>();
  }
  int integer(const char* field, int otherwise) {
    const json* value = object(field);
    if (value == nullptr) return otherwise;
    // 64.5 and 2^32 + 64 would both become 64.
    const bool fits =
        value->is_number_unsigned()
            ? value->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<int>::max()}
            : value->is_number_integer() &&
                  value->get<std::int64_t>() >= std::numeric_limits<int>::min() &&
                  value->get<std::int64_t>() <= std::numeric_limits<int>::max();
    if (!fits) refuse_type(field, "a whole number", *value);
    return value->get<int>();
  }
  std::string text(const char* field, const char* otherwise) {
    const json* value = object(field);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) refuse_type(field, "a string", *value);
    return value->get<std::string>();
  }
  DType dtype(const char* field, DType otherwise) {
    const json* value = object(field);
    if (value == nullptr) return otherwise;
    const std::string given = text(field, "");
    for (DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      if (given == name(dtype)) return dtype;
    }
    refuse(std::string("field '") + field + "' must be float16, bfloat16 or float32, got '" +
           given + "'");
  }
  DType attn_mask(const char* field) {
    return text(field, "") == name(DType::boolean) ? DType::boolean : dtype(field, DType::none);
  }
  // Of a GEMM's a or b.
  DType operand(const char* field, DType otherwise) {
    const std::string given = text(field, "");
    for (DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
      if (given == name(dtype)) return dtype;
    }
    return dtype(field, otherwise);
  }
  // Of the config table; 0 where the spec leaves it open.
  int tile(const char* field) {
    const int size = integer(field, 0);
    if (size < 1 && object(field) != nullptr) {
      refuse(std::string("field '") + field + "' must be a tile size from 1 on, got " +
             std::to_string(size));
    }
    return size;
  }
  const json* object(const char* field) {
    seen_.insert(field);
    auto it = object_.find(field);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  void finish() const {
    for (const auto& item : object_.items()) {
      if (!seen_.contains(item.key()))
        refuse("unknown field '" + item.key() + "'; docs/prewarm.md lists the fields there are");
    }
  }

 private:
  [[noreturn]] static void refuse_type(const char* field, const char* expected, const json& got) {
    refuse(std::string("field '") + field + "' has the wrong type: it must be " + expected +
           ", got " + got.dump());
  }

  const json& object_;
  std::set<std::string> seen_;
};

constexpr int kNotGiven = std::numeric_limits<int>::min();

std::uint16_t head_dim(Fields& fields, const char* field, int otherwise) {
  const int dim = fields.integer(field, otherwise);
  if (dim == kNotGiven) {
    refuse(std::string("field '") + field + "' is missing; give a multiple of 8 up to 256");
  }
  if (dim < 8 || dim > 256 || dim % 8 != 0) {
    refuse(std::string("field '") + field + "' must be a multiple of 8 up to 256, got " +
           std::to_string(dim));
  }
  return static_cast<std::uint16_t>(dim);
}

Mask parse_mask(const std::string& text) {
  if (text == "none") return Mask::none;
  if (text == "causal") return Mask::causal;
  if (text == "window") return Mask::window;
  refuse("field 'mask' must be none, causal or window, got '" + text + "'");
}

const char* name(Mask mask) {
  return mask == Mask::none ? "none" : mask == Mask::causal ? "causal" : "window";
}

// Keeps the rows that a spec's tile fields name, all when it names none.
template <class Config, class Matches>
std::vector<int> matching_rows(std::span<const Config> table, const std::vector<int>& rows,
                               Matches matches) {
  std::vector<int> kept;
  for (int row : rows) {
    if (matches(table[static_cast<std::size_t>(row)])) kept.push_back(row);
  }
  if (kept.empty())
    refuse(
        "its tile is not a row of the config table for these properties; leave the tile fields "
        "out, "
        "or take a row that kiln inspect lists");
  return kept;
}

bool wants(int wanted, int have) { return wanted == 0 || wanted == have; }

std::vector<OwnedSpec> attention_specs(Fields& fields, int arch) {
  AttentionTraits traits;
  traits.dtype = fields.dtype("dtype", DType::bf16);
  if (traits.dtype == DType::f32) refuse("field 'dtype' must be float16 or bfloat16 for attention");
  traits.head_dim = head_dim(fields, "head_dim", kNotGiven);
  traits.head_dim_v = head_dim(fields, "head_dim_v", traits.head_dim);
  traits.mask = parse_mask(fields.text("mask", "none"));
  traits.softcap = fields.boolean("softcap", false);
  traits.alibi = fields.boolean("alibi", false);
  traits.sinks = fields.dtype("sinks", DType::none);
  traits.attn_mask = fields.attn_mask("attn_mask");
  const bool pairs = fields.boolean("mask_pairs", true);
  traits.mask_pairs = pairs && traits.attn_mask != DType::none;
  traits.aligned = fields.boolean("aligned", true);
  OwnedSpec owned;
  if (const json* variant = fields.object("variant")) {
    owned.variant = std::make_shared<const Variant>(variant_from_json(*variant));
    traits.variant = owned.variant->digest();
  }
  const int block_q = fields.tile("block_q"), block_kv = fields.tile("block_kv");
  const int warps = fields.tile("warps"), stages = fields.tile("stages");
  const bool any_splits = fields.object("splits") == nullptr;
  const bool splits = fields.boolean("splits", false);
  fields.finish();
  const auto rows = matching_rows(
      attention_configs(), attention_rows(traits, arch), [&](const AttentionConfig& config) {
        return wants(block_q, config.block_q) && wants(block_kv, config.block_kv) &&
               wants(warps, config.warps) && wants(stages, config.stages) &&
               (any_splits || splits == config.splits);
      });
  std::vector<OwnedSpec> specs;
  for (int row : rows) {
    owned.spec = Specialization(arch, row, traits);
    specs.push_back(owned);
  }
  return specs;
}

void parse_layout(const std::string& layout, GemmTraits& traits) {
  const bool sound = layout.size() == 2 && layout.find_first_not_of("nt") == std::string::npos;
  if (!sound) refuse("field 'layout' must be nn, nt, tn or tt, got '" + layout + "'");
  traits.major_a = layout[0] == 'n' ? Major::k : Major::mn;
  traits.major_b = layout[1] == 't' ? Major::k : Major::mn;
}

Access parse_access(const char* field, const std::string& text) {
  for (const Access access : {Access::elements, Access::boxes, Access::vectors}) {
    if (text == name(access)) return access;
  }
  refuse(std::string("field '") + field + "' must be elements, boxes or vectors, got '" + text +
         "'");
}

Scale parse_scale(const char* field, const std::string& text) {
  for (const Scale scale : {Scale::none, Scale::tensor, Scale::vector}) {
    if (text == name(scale)) return scale;
  }
  refuse(std::string("field '") + field + "' must be none, tensor or vector, got '" + text + "'");
}

// Dtypes of a and b, and how their sums are kept.
void parse_operands(Fields& fields, GemmTraits& traits) {
  traits.input = fields.operand("dtype", DType::bf16);
  const DType b = fields.operand("dtype_b", traits.input);
  const bool f8 = is_f8(traits.input);
  if (b != traits.input && !(f8 && is_f8(b))) {
    refuse(std::string("field 'dtype_b' must be dtype, or both are 8-bit floats; got '") + name(b) +
           "' for '" + name(traits.input) + "'");
  }
  traits.input_b = b == traits.input ? DType::none : b;
  const std::string precision = fields.text("precision", "full");
  if (precision != "full" && precision != "fast") {
    refuse("field 'precision' must be full or fast, got '" + precision + "'");
  }
  traits.fast = precision == "fast";
  if (traits.fast && !f8) {
    refuse("field 'precision' fast needs a dtype of 8-bit floats");
  }
  traits.output = fields.dtype("out_dtype", f8 ? DType::bf16 : traits.input);
}

// Why there may be no row for 8-bit floats at all.
void check_f8(const GemmTraits& traits, int arch) {
  if (!is_f8(traits.input)) return;
  const std::string reason = why_not_sm90(traits, arch, 1);
  if (!reason.empty()) refuse(std::string(name(traits.input)) + " is for sm_90a alone: " + reason);
}

Accumulator parse_accumulator(const std::string& text, DType input) {
  if (text == "float32") return Accumulator::f32;
  if (text != "float16")
    refuse("field 'accumulator' must be float32 or float16, got '" + text + "'");
  if (input != DType::f16) refuse("field 'accumulator' float16 needs dtype float16");
  return Accumulator::f16;
}

Gate parse_spec_gate(const std::string& text, Activation activation) {
  const Gate gate = parse_gate(text);
  if (is_gated(activation)) return gate == Gate::none ? Gate::halves : gate;
  if (gate != Gate::none) refuse("field 'gate' needs activation swiglu, geglu or geglu_tanh");
  return Gate::none;
}

std::vector<OwnedSpec> gemm_specs(Fields& fields, int arch) {
  GemmTraits traits;
  OwnedSpec owned;
  parse_operands(fields, traits);
  parse_layout(fields.text("layout", "nt"), traits);
  traits.accumulator = parse_accumulator(fields.text("accumulator", "float32"), traits.input);
  traits.bias = fields.dtype("bias", DType::none);
  traits.residual = fields.dtype("residual", DType::none);
  traits.scale_a = parse_scale("scale_a", fields.text("scale_a", "none"));
  traits.scale_b = parse_scale("scale_b", fields.text("scale_b", "none"));
  const std::string activation = fields.text("activation", "none");
  if (activation.empty()) refuse("field 'activation' is empty; leave it out, or give none");
  traits.activation = parse_activation(activation);
  traits.gate = parse_spec_gate(fields.text("gate", ""), traits.activation);
  traits.loads = parse_access("loads", fields.text("loads", "vectors"));
  traits.stores = parse_access("stores", fields.text("stores", "vectors"));
  owned.epilogue = fields.text("epilogue", "");
  if (!owned.epilogue.empty()) {
    if (traits.activation != Activation::none) refuse("give 'epilogue' or 'activation', not both");
    traits.epilogue = epilogue_digest(owned.epilogue);
  }
  const int block_m = fields.tile("block_m"), block_n = fields.tile("block_n");
  const int block_k = fields.tile("block_k"), stages = fields.tile("stages");
  const int cluster = fields.tile("cluster");
  const bool any_splits = fields.object("splits") == nullptr;
  const bool splits = fields.boolean("splits", false);
  fields.finish();
  const bool is_tile_named = block_m != 0 || block_n != 0 || block_k != 0 || stages != 0;
  check_f8(traits, arch);
  const auto rows = matching_rows(
      gemm_configs(), is_tile_named ? all_gemm_rows(traits, arch) : gemm_rows(traits, arch),
      [&](const GemmConfig& config) {
        return wants(block_m, config.block_m) && wants(block_n, config.block_n) &&
               wants(block_k, config.block_k) && wants(stages, config.stages) &&
               wants(cluster, config.sm90.cluster) && (any_splits || splits == config.sm90.splits);
      });
  std::vector<OwnedSpec> specs;
  for (int row : rows) {
    owned.spec = gemm_specialization(arch, row, traits);
    specs.push_back(owned);
  }
  return specs;
}

json optional_dtype(DType dtype) { return dtype == DType::none ? json() : json(name(dtype)); }

}  // namespace

json spec_to_json(const Specialization& spec, const UserTexts& texts) {
  const std::size_t row = static_cast<std::size_t>(spec.row());
  if (spec.family() == Family::attention) {
    const AttentionTraits t = spec.attention();
    const AttentionConfig& c = attention_configs()[row];
    return {{"op", "flash_attention"},
            {"dtype", name(t.dtype)},
            {"head_dim", t.head_dim},
            {"head_dim_v", t.head_dim_v},
            {"mask", name(t.mask)},
            {"softcap", t.softcap},
            {"alibi", t.alibi},
            {"sinks", optional_dtype(t.sinks)},
            {"attn_mask", optional_dtype(t.attn_mask)},
            {"mask_pairs", t.attn_mask != DType::none ? json(t.mask_pairs) : json()},
            {"aligned", t.aligned},
            {"variant", texts.variant ? variant_to_json(*texts.variant) : json()},
            {"block_q", c.block_q},
            {"block_kv", c.block_kv},
            {"warps", c.warps},
            {"stages", c.stages},
            {"splits", c.splits}};
  }
  const GemmTraits t = spec.gemm();
  const GemmConfig& c = gemm_configs()[row];
  return {{"op", "gemm"},
          {"dtype", name(t.input)},
          {"dtype_b", name(t.dtype_b())},
          {"out_dtype", name(t.output)},
          {"precision", t.fast ? "fast" : "full"},
          {"layout", layout_name(t)},
          {"accumulator", t.accumulator == Accumulator::f16 ? "float16" : "float32"},
          {"bias", optional_dtype(t.bias)},
          {"residual", optional_dtype(t.residual)},
          {"scale_a", name(t.scale_a)},
          {"scale_b", name(t.scale_b)},
          {"activation", name(t.activation)},
          {"gate", t.gate == Gate::none ? json() : json(name(t.gate))},
          {"epilogue", texts.epilogue.empty() ? json() : json(std::string(texts.epilogue))},
          {"loads", name(t.loads)},
          {"stores", name(t.stores)},
          {"block_m", c.block_m},
          {"block_n", c.block_n},
          {"block_k", c.block_k},
          {"stages", c.stages},
          {"cluster", c.is_sm90() ? json(c.sm90.cluster) : json()},
          {"splits", c.sm90.splits}};
}

std::vector<OwnedSpec> specs_from_json(const json& spec, int arch) {
  if (!spec.is_object()) refuse("must be an object, got " + spec.dump());
  Fields fields(spec);
  const std::string op = fields.text("op", "");
  if (op == "flash_attention") return attention_specs(fields, arch);
  if (op == "gemm") return gemm_specs(fields, arch);
  refuse("field 'op' must be flash_attention or gemm, got '" + op + "'");
}

std::vector<json> parse_specs(const std::string& text) {
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::parse_error& error) {
    refuse("the text is not valid JSON: byte " + std::to_string(error.byte) +
           " is not what may follow there");
  }
  if (parsed.is_array()) return parsed.get<std::vector<json>>();
  return {parsed};
}

}  // namespace kiln
