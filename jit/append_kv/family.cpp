#include "jit/append_kv/family.h"

#include <bit>
#include <cstddef>

#include "jit/append_kv/config.h"
#include "jit/append_kv/render.h"
#include "jit/append_kv/samples.h"
#include "jit/op/checks.h"
#include "jit/op/names.h"
#include "templates/append_kv/params.h"

namespace kiln {
namespace {

constexpr Named kCacheNames[] = {{"float16", DType::f16},
                                 {"bfloat16", DType::bf16},
                                 {"float8_e4m3fn", DType::f8_e4m3},
                                 {"float8_e5m2", DType::f8_e5m2},
                                 {"int8", DType::i8}};

bool rotates(const Traits& words) { return as<AppendTraits>(words).rotary != 0; }

constexpr Field kAppendFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AppendTraits, input),
     .values = kHalfNames,
     .otherwise = "bfloat16",
     .help = "of key, value and query",
     .says = " {}",
     .when = Says::always},
    {.name = "cache_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AppendTraits, cache),
     .values = kCacheNames,
     .help = "of the caches: dtype (the default), or an 8-bit one",
     .tell =
         [](const Traits& words) {
           const auto t = as<AppendTraits>(words);
           return t.cache == t.input ? "" : std::string(" -> ") + name(t.cache);
         }},
    {.name = "head_dim",
     .kind = FieldKind::integer,
     .offset = offsetof(AppendTraits, head_dim),
     .help = "of key and query, a multiple of 2 up to 512; default: 128",
     .says = " d{}",
     .when = Says::always,
     .least = 2,
     .most = 512,
     .multiple = 2},
    {.name = "head_dim_v",
     .kind = FieldKind::integer,
     .offset = offsetof(AppendTraits, head_dim_v),
     .help = "of value; default: head_dim",
     .least = 2,
     .most = 512,
     .multiple = 2,
     .tell =
         [](const Traits& words) {
           const auto t = as<AppendTraits>(words);
           return t.head_dim_v == t.head_dim ? "" : "/" + std::to_string(t.head_dim_v);
         }},
    {.name = "query",
     .kind = FieldKind::flag,
     .offset = offsetof(AppendTraits, query),
     .otherwise = "false",
     .help = "the call has a query",
     .says = " query",
     .when = Says::when_set},
    {.name = "weight",
     .kind = FieldKind::choice,
     .offset = offsetof(AppendTraits, weight),
     .values = kFloatNames,
     .help = "dtype of the weights of queries and keys; null = none, no norm",
     .says = " weight {}",
     .when = Says::when_set,
     .null_if_unset = true},
    {.name = "rotary",
     .kind = FieldKind::integer,
     .offset = offsetof(AppendTraits, rotary),
     .help = "elements of a head that rotate, a multiple of 2 up to head_dim; default: 0, none",
     .says = " rotary {}",
     .when = Says::when_set,
     .least = 0,
     .most = 512,
     .multiple = 2},
    {.name = "rotary_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AppendTraits, table),
     .values = kFloatNames,
     .help = "of cos and sin: float32 (the default) or dtype",
     .says = " tables {}",
     .when = Says::when_set,
     .null_if_unset = true},
    {.name = "interleaved",
     .kind = FieldKind::flag,
     .offset = offsetof(AppendTraits, interleaved),
     .otherwise = "false",
     .help = "neighbours rotate together instead of elements of both halves",
     .says = " interleaved",
     .when = Says::when_set,
     .applies = rotates},
    {.name = "sequences",
     .kind = FieldKind::flag,
     .offset = offsetof(AppendTraits, sequences),
     .otherwise = "false",
     .help = "k_new of flash_attention_with_kvcache: tokens follow their sequence's keys in the "
             "cache, and have no slots",
     .says = " behind sequences",
     .when = Says::when_set},
    {.name = "vector",
     .kind = FieldKind::integer,
     .offset = offsetof(AppendTraits, vector),
     .help =
         "elements that are read at a time, which divide the strides and the addresses (16 bytes "
         "suffice), and half of each head dim; default: the most, up to 8",
     .says = " by {}",
     .when = Says::always,
     .least = 1,
     .most = 8},
};

constexpr Field kAppendRowFields[] = {
    {.name = "rows",
     .kind = FieldKind::integer,
     .offset = offsetof(AppendConfig, rows),
     .help = "heads of a token that a group of threads walks over"},
};

const AppendConfig& append_config_at(int row) {
  return append_configs()[static_cast<std::size_t>(row)];
}

constexpr Template kAppendTemplates[] = {
    {.family = &kAppendKv,
     .path = "portable",
     .file = "append_kv/append_kv.cuh",
     .means = "one launch, heads in registers",
     .row_fields = kAppendRowFields,
     .row = [](int row) -> const void* { return &append_config_at(row); },
     .tile = [](int row) { return tile_name(append_config_at(row)); },
     .reason = [](int row) { return append_config_at(row).reason; },
     .footprint = [](const Specialization&) { return Footprint{kAppendThreads, 0}; },
     .render = render_append_kv}};

void settle_dtypes(AppendTraits& t) {
  if (t.cache == DType::none) t.cache = t.input;
  if (is_half(t.cache) && t.cache != t.input) {
    refuse_field("cache_dtype", std::string("must be dtype, or an 8-bit one; got '") +
                                    name(t.cache) + "' for '" + name(t.input) + "'");
  }
  if (t.rotary == 0) t.table = DType::none, t.interleaved = false;
  if (t.rotary != 0 && t.table == DType::none) t.table = DType::f32;
  if (is_half(t.table) && t.table != t.input) {
    refuse_field("rotary_dtype", std::string("must be float32 or dtype; got '") + name(t.table) +
                                     "' for '" + name(t.input) + "'");
  }
}

void settle_append(Traits& words, const UserTexts&, int) {
  auto t = as<AppendTraits>(words);
  if (t.head_dim == 0) t.head_dim = 128;
  if (t.head_dim_v == 0) t.head_dim_v = t.head_dim;
  if (t.rotary > t.head_dim) {
    refuse_field("rotary", "must be at most head_dim, " + std::to_string(t.head_dim) + ", got " +
                               std::to_string(t.rotary));
  }
  settle_dtypes(t);
  if (t.vector == 0) {
    t.vector = 8;
    while (!admits_vector(t, t.vector)) t.vector /= 2;
  }
  if (!std::has_single_bit(t.vector) || !admits_vector(t, t.vector)) {
    refuse_field("vector",
                 "must be 1, 2, 4 or 8, and divide the halves of the head dims and of what rotates "
                 "and does not rotate, got " +
                     std::to_string(t.vector));
  }
  words = std::bit_cast<Traits>(t);
}

std::vector<Specialization> append_kernels(const Traits& words, int arch, Kernels which) {
  const auto traits = as<AppendTraits>(words);
  std::vector<Specialization> specs;
  for (int row = 0; row < static_cast<int>(append_configs().size()); ++row) {
    if (which == Kernels::chosen && !may_choose(traits, row)) continue;
    specs.emplace_back(append_template(), arch, row, traits);
  }
  return specs;
}

}  // namespace

const Template& append_template() { return kAppendTemplates[0]; }

constinit const Family kAppendKv = {.name = "append_kv",
                                    .title = "appending",
                                    .templates = kAppendTemplates,
                                    .fields = kAppendFields,
                                    .settle = settle_append,
                                    .kernels = append_kernels,
                                    .samples = append_samples};

}  // namespace kiln
