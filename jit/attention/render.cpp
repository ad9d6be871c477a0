#include "jit/attention/render.h"

#include <algorithm>

#include "jit/attention/config.h"
#include "jit/attention/element_bounds.h"
#include "jit/attention/logit_cap.h"
#include "jit/attention/logit_tilt.h"
#include "jit/attention/mask_source.h"
#include "jit/attention/variant_arguments.h"
#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "jit/op/source_text.h"
#include "jit/op/user_values.h"

namespace kiln {
namespace {

// A hook whose body evaluates the user's expression with every public name in scope. A tensor's
// name stands for its element at this position, unless it is a table, which the expression calls
// with indices of its own. The compiler drops the loads of unused ones. `ahead`: statements.
std::string hook(const VariantDefinition& d, const std::string& head, const char* return_type,
                 const std::string& label, const std::string& expression,
                 const std::string& ahead = "") {
  SourceText text;
  text << "  __device__ __forceinline__ " << return_type << " " << head << " const {\n"
       << "    [[maybe_unused]] const int b = at.b, h = at.h, h_kv = at.h_kv, row = at.row,\n"
       << "                               q = at.q, kv = at.kv, len_q = at.len_q,\n"
       << "                               len_kv = at.len_kv;\n";
  text << param_names(d.params);
  for (const VariantTensor& tensor : d.tensors) {
    if (is_table(tensor)) {
      text << table_name(tensor);
      continue;
    }
    const bool integer =
        tensor.dtype == DType::i32 || tensor.dtype == DType::i64 || tensor.dtype == DType::u8;
    text << "    [[maybe_unused]] const "
         << (tensor.dtype == DType::boolean ? "bool"
             : integer                      ? "int"
                                            : "float")
         << " " << tensor.name << " = "
         << (integer || tensor.dtype == DType::boolean ? "" : "kiln::to_float") << "(arguments."
         << tensor.name << ".read(";
    for (std::size_t i = 0; i < tensor.indices.size(); ++i) {
      text << (i ? ", " : "") << "at." << tensor.indices[i];
    }
    text << "));\n";
  }
  text << ahead << user_return(label, expression) << "  }\n";
  return text.str();
}

// The file's struct must have what the call packs; one without members has a size of its own all
// the same.
std::string slots_check(const VariantDefinition& d) {
  const std::size_t words = argument_words(d) + kBoundsWords * bounded_tensors(d).size();
  SourceText text;
  text << "static_assert(";
  if (words == 0) {
    text << "__is_empty(UserVariant)";
  } else {
    text << "sizeof(UserVariant) == " << 8 * words;
  }
  text << ", \"the file's Slots must match params and tensors\");\n";
  return text.str();
}

std::string members_over_tiles(const VariantDefinition& d) {
  return d.mask.empty() ? "" : mask_source(d).members;
}

// The struct of the expressions.
std::string expressed_variant(const VariantDefinition& d, const char* name, bool closely) {
  SourceText text;
  text << "struct " << name << " : kiln::VariantDefaults {\n"
       << slot_members(d.params, d.tensors, nullptr, closely)
       << bounds_members(d, bounded_tensors(d))
       << "  static constexpr bool kTransformsLogits = " << (d.logits.empty() ? "false" : "true")
       << ";\n  static constexpr bool kMasks = " << (d.mask.empty() ? "false" : "true") << ";\n";
  if (!may_index_by_key(d)) text << "  static constexpr bool kIndexesByKey = false;\n";
  if (const LogitCap cap = cap_of(d); cap.is_known()) {
    text << cap_hooks(d, cap);
  } else if (!d.logits.empty()) {
    text << hook(d, "logits(float logit, const kiln::Position& at)", "float", "variant logits",
                 d.logits);
  }
  if (const LogitTilt tilt = tilt_of(d); tilt.is_known()) {
    text << "  static constexpr bool kTilts = true;\n"
         << (tilt.from_row ? "  static constexpr bool kTiltsFromRow = true;\n" : "")
         << hook(d, "tilt_factor(const kiln::Position& at)", "float", "variant logits", tilt.factor)
         << hook(d, "tilt(const kiln::Position& at)", "float", "variant logits", tilt.growth);
  }
  if (!d.mask.empty()) {
    const MaskReadAhead mask = closely ? read_ahead(d) : MaskReadAhead{"", d.mask};
    text << hook(d, "keep(const kiln::Position& at)", "bool", "variant mask", mask.text,
                 mask.statements)
         << members_over_tiles(d);
  }
  text << "};\n";
  return text.str();
}

// A file's struct may derive from that of a mask's expression, UserMask, and ask it.
std::string user_variant(const VariantDefinition& d, bool closely) {
  if (d.file_text.empty()) return expressed_variant(d, "UserVariant", closely);
  SourceText text;
  if (!d.mask.empty()) text << expressed_variant(d, "UserMask", closely);
  text << "#line 1 \"" << kUserFileLabel << "\"\n"
       << d.file_text << "\n#line 1 \"kernel.cu\"\n"
       << slots_check(d);
  return text.str();
}

// The namespace of a variant of a list.
std::string room_of(std::size_t number) { return "user_variant_" + std::to_string(number); }

// The file's own #include lines, for which a namespace is no place; they have no effect twice.
std::string includes_of(const std::string& file_text) {
  constexpr std::string_view kInclude = "#include \"";
  std::string text;
  for (std::size_t at = file_text.find(kInclude); at != std::string::npos;
       at = file_text.find(kInclude, at + 1)) {
    const std::size_t end = file_text.find('"', at + kInclude.size());
    if (end != std::string::npos) text += file_text.substr(at, end + 1 - at) + "\n";
  }
  return text;
}

// A variant of a list has a namespace of its own, so that the names of one do not meet those of
// another. There kiln::VariantDefaults is another type in each: equal empty bases may not share an
// address, which would move the values behind them.
std::string user_variants(const Variant& variant, bool closely) {
  const Variant::Definitions& definitions = variant.definitions();
  SourceText text;
  const auto reads_tiles = [](const auto& d) {
    return !members_over_tiles(*d).empty() || !bounded_tensors(*d).empty();
  };
  if (std::ranges::any_of(definitions, reads_tiles))
    text << "#include \"/kiln/attention/mask_box.cuh\"\n\n";
  if (std::ranges::any_of(definitions, [](const auto& d) { return cap_of(*d).is_known(); }))
    text << "#include \"/kiln/attention/logit_cap.cuh\"\n\n";
  if (definitions.size() == 1) return text.str() + user_variant(*definitions[0], closely);
  for (std::size_t i = 0; i < definitions.size(); ++i) {
    text << includes_of(definitions[i]->file_text) << "namespace " << room_of(i)
         << " {\nnamespace kiln {\nusing namespace ::kiln;\n"
         << "using VariantDefaults = DefaultHooks<struct Own>;\n}  // namespace kiln\n"
         << with_numbered_labels(user_variant(*definitions[i], closely), i) << "}  // namespace "
         << room_of(i) << "\n";
  }
  return text.str();
}

std::string type_of(const BuiltinVariant& variant, const AttentionTraits& traits) {
  std::string type = variant.type;
  if (const std::size_t at = type.find("{}"); at != std::string::npos) {
    type.replace(at, 2,
                 variant.field.kind == FieldKind::choice
                     ? device_type(static_cast<DType>(byte_at(&traits, variant.field)))
                     : (traits.mask == Mask::causal ? "true" : "false"));
  }
  return type;
}

// The order is the order of evaluation: softcap, ALiBi, attn_mask, the user's logits; masks; sinks.
// builtin_variants.cpp packs the run-time values in the same order.
std::string variant_list(const AttentionTraits& traits, const UserTexts& texts) {
  std::string list;
  auto add = [&](const std::string& name) { list += (list.empty() ? "" : ", ") + name; };
  const auto add_builtins = [&](Hook hook) {
    for (const BuiltinVariant& variant : kBuiltinVariants) {
      if (variant.hook == hook && is_set(variant, traits)) add(type_of(variant, traits));
    }
  };
  add_builtins(Hook::logits);
  if (traits.attn_mask == DType::boolean) {
    add(std::string("kiln::MaskTensor<") + (traits.mask_pairs ? "true>" : "false>"));
  } else if (traits.attn_mask != DType::none) {
    add("kiln::BiasTensor<" + device_type(traits.attn_mask) +
        (traits.mask_pairs ? ", true>" : ", false>"));
  }
  if (traits.mask == Mask::causal) add("kiln::Causal");
  if (traits.mask == Mask::window) add("kiln::Window");
  if (traits.mask == Mask::causal_each) add("kiln::CausalEach");
  if (traits.mask == Mask::tree) add("kiln::Tree");
  add_builtins(Hook::row_finish);
  const std::size_t count = texts.variant ? texts.variant->definitions().size() : 1;
  for (std::size_t i = 0; traits.has_variant() && i < count; ++i) {
    add(count == 1 ? "UserVariant" : room_of(i) + "::UserVariant");
  }
  return "kiln::Variants<" + list + ">";
}

}  // namespace

std::string quantized_source(const AttentionTraits& traits, int arch) {
  std::string fields;
  if (traits.has_quantized_cache()) {
    fields += "  using QueryElement = " + device_type(traits.byte_queries ? traits.k : traits.q) +
              ";\n  using CacheElement = " + device_type(traits.k) + ";\n";
  }
  if (traits.has_quantized_output()) {
    fields += "  using OutElement = " + device_type(traits.out) + ";\n";
  }
  if (traits.has_quantized_cache() || traits.has_quantized_output()) {
    const bool hardware = arch_table()[static_cast<std::size_t>(arch)].number >= 89;
    fields += std::string("  static constexpr bool kHardware = ") + boolean(hardware) + ";\n";
  }
  return fields;
}

std::string variant_source(const AttentionTraits& traits, const UserTexts& texts, bool closely) {
  const std::string user = texts.variant ? user_variants(*texts.variant, closely) : "";
  std::string check;
  if (texts.variant && texts.variant->definitions().size() > 1) {
    check =
        "static_assert(sizeof(Variant) == Variant::kBytes || Variant::kBytes == 0, \"the values of "
        "a list of "
        "variants must follow one another: derive each from kiln::VariantDefaults\");\n";
  }
  return user + "using Variant = " + variant_list(traits, texts) + ";\n" + check + "\n";
}

namespace {

std::string render_portable(const Specialization& spec, const UserTexts& texts,
                            const std::string& file, const std::string& fields,
                            const std::string& function) {
  const auto traits = spec.traits_as<AttentionTraits>();
  const AttentionConfig& config = attention_config(spec.row());
  SourceText text;
  text << "#include \"/kiln/attention/" << file << "\"\n\n"
       << "struct Config {\n"
       << "  using Element = " << device_type(traits.q) << ";\n"
       << "  static constexpr int kHeadDim = " << traits.head_dim << ";\n"
       << "  static constexpr int kHeadDimV = " << traits.head_dim_v << ";\n"
       << "  static constexpr int kBlockQ = " << config.block_q << ";\n"
       << "  static constexpr int kBlockKv = " << config.block_kv << ";\n"
       << "  static constexpr int kWarps = " << config.warps << ", kTeams = " << config.teams
       << ", kPartners = " << config.partners << ", kStages = " << config.stages << ";\n"
       << "  static constexpr bool kPacked = " << boolean(config.splits)
       << ", kSplits = " << boolean(config.splits) << ";\n"
       << "  static constexpr bool kAligned = " << boolean(traits.aligned) << ";\n"
       << fields << "};\n"
       << variant_source(traits, texts)
       // Without the 1, ptxas aims for three CTAs an SM, and spills.
       << "extern \"C\" __global__ void __launch_bounds__(Config::kWarps * 32, 1)\n"
       << kEntryName << "(const __grid_constant__ kiln::" << function << "\n}\n";
  return text.str();
}

}  // namespace

std::string render_attention(const Specialization& spec, const UserTexts& texts) {
  return render_portable(
      spec, texts, "flash_attention.cuh", "",
      "AttentionArgs<Variant> args) {\n  kiln::flash_attention<Config, Variant>(args);");
}

std::string render_attention_varlen(const Specialization& spec, const UserTexts& texts) {
  const auto traits = spec.traits_as<AttentionTraits>();
  std::string fields = std::string("  static constexpr bool kPaged = ") +
                       boolean(traits.storage == Storage::paged) +
                       ", kSpread = " + boolean(traits.spread) +
                       ", kOverlaps = " + boolean(may_overlap(spec.arch())) + ";\n";
  fields += quantized_source(traits, spec.arch());
  return render_portable(
      spec, texts, "varlen/flash_attention.cuh", fields,
      "AttentionVarlenArgs<Variant> args) {\n  kiln::flash_attention_varlen<Config, "
      "Variant>(args);");
}

}  // namespace kiln
