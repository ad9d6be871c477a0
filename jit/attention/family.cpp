#include "jit/attention/family.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "jit/attention/config.h"
#include "jit/attention/context_parallel.h"
#include "jit/attention/mask_source.h"
#include "jit/attention/paths.h"
#include "jit/attention/render.h"
#include "jit/attention/samples.h"
#include "jit/attention/sm90_config.h"
#include "jit/attention/tensor_maps.h"
#include "jit/attention/tuning.h"

namespace kiln {
namespace {

constexpr Named kAttnMaskNames[] = {{"bool", DType::boolean},
                                    {"float16", DType::f16},
                                    {"bfloat16", DType::bf16},
                                    {"float32", DType::f32}};

constexpr Named kOutputDtypeNames[] = {{"float8_e4m3fn", DType::f8_e4m3}};

constexpr Field kFirstFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, q),
     .values = kHalfNames,
     .otherwise = "bfloat16",
     .help = "of q, k, v and out",
     .says = " {}",
     .when = Says::always},
    {.name = "cache_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, k),
     .values = kQuantizedNames,
     .help = "of k and v in a quantised cache, with storage ragged or paged; null = dtype",
     .says = " of {}",
     .when = Says::when_set,
     .applies = [](const Traits& t) { return as<AttentionTraits>(t).has_quantized_cache(); }},
    {.name = "quantized_queries",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionTraits, byte_queries),
     .otherwise = "false",
     .help = "q has cache_dtype too, an 8-bit float; dtype is that of out",
     .says = " and q",
     .when = Says::when_set},
    {.name = "widened_ahead",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionTraits, widened_ahead),
     .otherwise = "false",
     .help = "a launch of copy_keys has turned a quantised cache into dtype, with storage ragged: "
             "its scales apply",
     .says = " of widened keys",
     .when = Says::when_set},
    {.name = "head_dim",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionTraits, head_dim),
     .help = "a multiple of 8 up to 256, or 512",
     .says = " d{}",
     .when = Says::always,
     .required = true,
     .least = 8,
     .most = kMostHeadDim,
     .multiple = 8,
     .also = kWideHeadDim},
    {.name = "head_dim_v",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionTraits, head_dim_v),
     .help = "of v and out; default: head_dim, which it is beyond 256",
     .least = 8,
     .most = kMostHeadDim,
     .multiple = 8,
     .also = kWideHeadDim,
     .tell =
         [](const Traits& words) {
           const auto t = as<AttentionTraits>(words);
           return t.head_dim_v == t.head_dim ? "" : "/" + std::to_string(t.head_dim_v);
         }},
    {.name = "mask",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, mask),
     .values = kMaskNames,
     .otherwise = "none",
     .help = "causal: a query sees the keys up to its own; window: with or without causal; "
             "causal_each: as a flag of each sequence says; tree: the call has a tree_mask",
     .says = " {}",
     .when = Says::when_set,
     .flag_each = true},
};

constexpr Field kLastFields[] = {
    {.name = "out_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, out),
     .values = kOutputDtypeNames,
     .help = "of out in a call with out_scale, with storage ragged or paged; null = dtype",
     .says = " to {}",
     .when = Says::when_set,
     .applies = [](const Traits& t) { return as<AttentionTraits>(t).has_quantized_output(); }},
    {.name = "attn_mask",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, attn_mask),
     .values = kAttnMaskNames,
     .help = "dtype of the call's attn_mask; null = none",
     .says = " attn_mask {}",
     .when = Says::when_set,
     .null_if_unset = true},
    {.name = "mask_pairs",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionTraits, mask_pairs),
     .otherwise = "true",
     .help = "attn_mask is read two keys at a time: their stride is 1, their number and the other "
             "strides even, the address that of a pair",
     .says = " by pairs",
     .when = Says::when_set,
     .flag = "--no-mask-pairs",
     .applies = [](const Traits& t) { return as<AttentionTraits>(t).attn_mask != DType::none; }},
    {.name = "storage",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, storage),
     .values = kStorageNames,
     .otherwise = "dense",
     .help = "of keys: ragged or paged where sequences have lengths of their own",
     .says = " {}",
     .when = Says::when_set},
    {.name = "context_parallel",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionTraits, spread),
     .otherwise = "false",
     .help = "keys of a sequence are spread over devices (cp_world), and the mask, ALiBi or the "
             "variant see their positions; not where one query of each sequence is causal",
     .says = " context parallel",
     .when = Says::when_set},
    {.name = "variant",
     .kind = FieldKind::variant,
     .offset = offsetof(AttentionTraits, variant),
     .help = "a user's variant; null = none",
     .says = " variant {}",
     .when = Says::when_set},
    {.name = "aligned",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionTraits, aligned),
     .otherwise = "true",
     .help = "bases and strides of q, k, v and out are multiples of 16 bytes; of an 8-bit out, 4",
     .says = " unaligned",
     .when = Says::when_unset,
     .flag = "--unaligned",
     .unset_reason = "element-wise loads: a base is not 16-byte aligned or a stride is not a "
                     "multiple of 16 bytes"},
};

// The built-in options stand between.
constexpr auto kFields = [] {
  std::array<Field, std::size(kFirstFields) + std::size(kBuiltinVariants) + std::size(kLastFields)>
      all{};
  auto* end = std::copy(std::begin(kFirstFields), std::end(kFirstFields), all.begin());
  for (const BuiltinVariant& variant : kBuiltinVariants) *end++ = variant.field;
  std::copy(std::begin(kLastFields), std::end(kLastFields), end);
  return all;
}();

constexpr Field kRowFields[] = {
    {.name = "block_q",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionConfig, block_q),
     .help = "query rows of a tile"},
    {.name = "block_kv",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionConfig, block_kv),
     .help = "keys that are read at a time"},
    {.name = "warps",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionConfig, warps),
     .help = "warps of a thread block"},
    {.name = "stages",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionConfig, stages),
     .help = "tiles of keys in shared memory"},
    {.name = "splits",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionConfig, splits),
     .help = "rows that pack heads and may split the keys, or those that do not; null = all"},
};

constexpr Field kSm90RowFields[] = {
    {.name = "block_q",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionSm90Config, block_q),
     .help = "query rows of a tile"},
    {.name = "block_kv",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionSm90Config, block_kv),
     .help = "keys that are read at a time"},
    {.name = "stages",
     .kind = FieldKind::integer,
     .offset = offsetof(AttentionSm90Config, stages),
     .help = "tiles of keys in shared memory"},
    {.name = "splits",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionSm90Config, splits),
     .help = "rows whose CTAs may share the keys of a tile, or the others; null = all"},
    {.name = "grouped",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionSm90Config, grouped),
     .help =
         "rows whose tiles hold all heads of a KV head but share no keys, or the others; null = "
         "all"},
};

Footprint footprint(const Specialization& spec) {
  const AttentionConfig& config = attention_config(spec.row());
  return {static_cast<unsigned>(config.warps) * 32,
          static_cast<unsigned>(shared_bytes(config, spec.traits_as<AttentionTraits>()))};
}

const AttentionSm90Config& sm90_config_of(int row) {
  return attention_sm90_configs()[static_cast<std::size_t>(row)];
}

Footprint sm90_footprint(const Specialization& spec) {
  const AttentionSm90Config& config = sm90_config_of(spec.row());
  return {static_cast<unsigned>(thread_count(config)),
          static_cast<unsigned>(shared_bytes(config, spec.traits_as<AttentionTraits>()))};
}

void settle(Traits& words, const UserTexts&, int) {
  auto traits = as<AttentionTraits>(words);
  const DType cache = traits.has_quantized_cache() ? traits.k : traits.q;
  const DType out = traits.has_quantized_output() ? traits.out : traits.q;
  traits.set_dtype(traits.q);
  traits.k = traits.v = cache;
  traits.out = out;
  if (traits.has_quantized_cache() && traits.storage == Storage::dense) {
    refuse_field("cache_dtype",
                 "must be left out where storage is dense; set storage to ragged or "
                 "paged, as sequences have lengths of their own in a cache");
  }
  if (traits.widened_ahead && (traits.storage != Storage::ragged || traits.has_quantized_cache())) {
    refuse_field("widened_ahead",
                 "must be false unless storage is ragged and cache_dtype is left out");
  }
  if (traits.byte_queries && traits.k != DType::f8_e4m3 && traits.k != DType::f8_e5m2) {
    refuse_field("quantized_queries",
                 "must be false unless cache_dtype is float8_e4m3fn or float8_e5m2");
  }
  if (traits.has_quantized_output() && traits.storage == Storage::dense) {
    refuse_field("out_dtype",
                 "must be left out where storage is dense; set storage to ragged or paged, as "
                 "calls over sequences alone quantise what they return");
  }
  if (traits.head_dim_v == 0) traits.head_dim_v = traits.head_dim;
  if (!may_meet(traits.head_dim, traits.head_dim_v)) {
    refuse_field("head_dim_v", "must be head_dim where one of them is beyond 256, got " +
                                   std::to_string(traits.head_dim_v) + " for " +
                                   std::to_string(traits.head_dim));
  }
  if (traits.attn_mask == DType::none) traits.mask_pairs = false;
  const bool is_of_sequences = traits.mask == Mask::causal_each || traits.mask == Mask::tree;
  if (is_of_sequences && traits.storage == Storage::dense) {
    refuse_field("mask", "must be none, causal or window where storage is dense");
  }
  if (traits.spread && traits.storage == Storage::dense) {
    refuse_field("context_parallel", "must be false where storage is dense");
  }
  if (traits.spread && traits.sinks != DType::none) {
    refuse_field("context_parallel", "must be false with sinks, which jit.merge_states applies");
  }
  if (!sees_positions(traits)) traits.spread = false;
  words = std::bit_cast<Traits>(traits);
}

// A tile is one of the spec's own storage.
std::vector<Specialization> kernels(const Traits& words, int arch, Kernels which) {
  const auto traits = as<AttentionTraits>(words);
  return which == Kernels::chosen ? kernels_of_calls(traits, arch)
                                  : attention_kernels(traits, arch);
}

constexpr Template kTemplates[] = {
    {.family = &kAttention,
     .path = "portable",
     .file = "attention/flash_attention.cuh",
     .means = "mma.sync, cp.async",
     .row_fields = kRowFields,
     .row = [](int row) -> const void* { return &attention_config(row); },
     .tile = [](int row) { return tile_name(attention_config(row)); },
     .reason = [](int row) { return attention_config(row).reason; },
     .why_not =
         [](const Traits& t, int) {
           return std::string(as<AttentionTraits>(t).storage == Storage::dense
                                  ? ""
                                  : "sequences have lengths of their own");
         },
     .footprint = footprint,
     .render = render_attention},
    {.family = &kAttention,
     .path = "sm_90a",
     .file = "attention/sm90/flash_attention.cuh",
     .means = "wgmma, tensor memory accelerator",
     .arch_specific = true,
     .row_fields = kSm90RowFields,
     .row = [](int row) -> const void* { return &sm90_config_of(row); },
     .tile = [](int row) { return tile_name(sm90_config_of(row)); },
     .reason = [](int row) { return sm90_config_of(row).reason; },
     .why_not = [](const Traits& t,
                   int arch) { return why_not_attention_sm90(as<AttentionTraits>(t), arch); },
     .footprint = sm90_footprint,
     .render = render_attention_sm90,
     .yields =
         [](const Specialization& spec) {
           return yields_for_sm90(spec.traits_as<AttentionTraits>());
         },
     .pack = pack_attention_sm90},
    {.family = &kAttention,
     .path = "varlen",
     .file = "attention/varlen/flash_attention.cuh",
     .means = "mma.sync, cp.async, lengths in device memory",
     .row_fields = kRowFields,
     .row = [](int row) -> const void* { return &attention_config(row); },
     .tile = [](int row) { return tile_name(attention_config(row)); },
     .reason = [](int row) { return attention_config(row).reason; },
     .why_not =
         [](const Traits& t, int) {
           const auto traits = as<AttentionTraits>(t);
           return std::string(traits.storage == Storage::dense
                                  ? "all sequences have the same lengths"
                              : traits.widened_ahead ? "it widens a quantised cache itself"
                                                     : "");
         },
     .footprint = footprint,
     .render = render_attention_varlen},
};

constexpr AttentionPath kPaths[] = {
    {.kernel = &kTemplates[1], .rows = attention_sm90_rows, .resolve = resolve_attention_sm90},
    {.kernel = &kTemplates[0], .rows = attention_rows, .resolve = resolve_portable},
    {.kernel = &kTemplates[2], .rows = varlen_rows, .resolve = resolve_varlen},
};

// Explanations say which tiles a user's masks skip, one variant after the other.
std::string note_of(const UserTexts& texts) {
  std::string notes;
  if (texts.variant == nullptr) return notes;
  for (const auto& definition : texts.variant->definitions()) {
    const std::string note = mask_note(*definition);
    if (!note.empty()) notes += (notes.empty() ? "" : "; ") + note;
  }
  return notes;
}

}  // namespace

std::span<const AttentionPath> attention_paths() { return kPaths; }

constinit const Template& kFlashAttention = kTemplates[0];
constinit const Template& kFlashAttentionSm90 = kTemplates[1];
constinit const Template& kFlashAttentionVarlen = kTemplates[2];

constinit const Family kAttention = {.name = "flash_attention",
                                     .title = "attention",
                                     .templates = kTemplates,
                                     .fields = kFields,
                                     .settle = settle,
                                     .kernels = kernels,
                                     .samples = attention_samples,
                                     .tuning = &kAttentionTuning,
                                     .note = note_of};

}  // namespace kiln
