#include "jit/merge_states/family.h"

#include <bit>
#include <cstddef>

#include "jit/merge_states/config.h"
#include "jit/merge_states/render.h"
#include "jit/merge_states/samples.h"
#include "jit/op/names.h"
#include "templates/merge_states/params.h"

namespace kiln {
namespace {

constexpr Field kMergeFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(MergeTraits, input),
     .values = kFloatNames,
     .otherwise = "bfloat16",
     .help = "of outs",
     .says = " {}",
     .when = Says::always},
    {.name = "out_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(MergeTraits, output),
     .values = kFloatNames,
     .help = "default: dtype",
     .tell =
         [](const Traits& words) {
           const auto t = as<MergeTraits>(words);
           return t.output == t.input ? "" : std::string(" -> ") + name(t.output);
         }},
    {.name = "sinks",
     .kind = FieldKind::choice,
     .offset = offsetof(MergeTraits, sinks),
     .values = kFloatNames,
     .help = "dtype of the sinks; null = none",
     .says = " sinks {}",
     .when = Says::when_set,
     .null_if_unset = true},
    {.name = "vector",
     .kind = FieldKind::integer,
     .offset = offsetof(MergeTraits, vector),
     .help = "elements that are read at a time, which divide the head dim, the strides and the "
             "addresses (16 bytes suffice); default: 16 bytes of outs",
     .says = " by {}",
     .when = Says::always,
     .least = 1,
     .most = 8},
};

constexpr Field kMergeRowFields[] = {
    {.name = "lanes",
     .kind = FieldKind::integer,
     .offset = offsetof(MergeConfig, lanes),
     .help = "threads that share the columns of a token's head"},
    {.name = "vectors",
     .kind = FieldKind::integer,
     .offset = offsetof(MergeConfig, vectors),
     .help = "accesses of each of them at a time"},
    {.name = "parts",
     .kind = FieldKind::integer,
     .offset = offsetof(MergeConfig, parts),
     .help = "parts that are read at a time"},
};

const MergeConfig& merge_config_at(int row) {
  return merge_configs()[static_cast<std::size_t>(row)];
}

constexpr Template kMergeTemplates[] = {
    {.family = &kMergeStates,
     .path = "portable",
     .file = "merge_states/merge_states.cuh",
     .means = "one launch, results in registers",
     .row_fields = kMergeRowFields,
     .row = [](int row) -> const void* { return &merge_config_at(row); },
     .tile = [](int row) { return tile_name(merge_config_at(row)); },
     .reason = [](int row) { return merge_config_at(row).reason; },
     .footprint = [](const Specialization&) { return Footprint{kMergeThreads, 0}; },
     .render = render_merge_states}};

void settle_merge(Traits& words, const UserTexts&, int) {
  auto t = as<MergeTraits>(words);
  const int most = 16 / size_of(t.input);
  if (t.output == DType::none) t.output = t.input;
  if (t.vector == 0) t.vector = static_cast<std::uint16_t>(most);
  if (!std::has_single_bit(t.vector) || t.vector > most) {
    refuse_field("vector", "must be a power of two up to " + std::to_string(most) + " for " +
                               name(t.input) + ", got " + std::to_string(t.vector));
  }
  words = std::bit_cast<Traits>(t);
}

std::vector<Specialization> merge_kernels(const Traits& words, int arch, Kernels) {
  std::vector<Specialization> specs;
  for (int row = 0; row < static_cast<int>(merge_configs().size()); ++row) {
    specs.emplace_back(merge_template(), arch, row, as<MergeTraits>(words));
  }
  return specs;
}

}  // namespace

const Template& merge_template() { return kMergeTemplates[0]; }

constinit const Family kMergeStates = {.name = "merge_states",
                                       .title = "merging",
                                       .templates = kMergeTemplates,
                                       .fields = kMergeFields,
                                       .settle = settle_merge,
                                       .kernels = merge_kernels,
                                       .samples = merge_samples};

}  // namespace kiln
