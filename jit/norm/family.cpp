#include "jit/norm/family.h"

#include <array>
#include <bit>
#include <cstddef>

#include "jit/norm/config.h"
#include "jit/norm/render.h"
#include "jit/norm/samples.h"

namespace kiln {
namespace {

constexpr Field kDtype = {.name = "dtype",
                          .kind = FieldKind::choice,
                          .offset = offsetof(NormTraits, input),
                          .values = kFloatNames,
                          .otherwise = "bfloat16",
                          .help = "of x, residual and residual_out",
                          .says = " {}",
                          .when = Says::always};
constexpr Field kOutDtype = {.name = "out_dtype",
                             .kind = FieldKind::choice,
                             .offset = offsetof(NormTraits, output),
                             .values = kFloatNames,
                             .help = "default: dtype",
                             .tell = [](const Traits& words) {
                               const auto t = as<NormTraits>(words);
                               return t.output == t.input ? ""
                                                          : std::string(" -> ") + name(t.output);
                             }};
constexpr Field kWeight = {.name = "weight",
                           .kind = FieldKind::choice,
                           .offset = offsetof(NormTraits, weight),
                           .values = kFloatNames,
                           .help = "dtype of the weight; null = none",
                           .says = " weight {}",
                           .when = Says::when_set,
                           .null_if_unset = true};
constexpr Field kBias = {.name = "bias",
                         .kind = FieldKind::choice,
                         .offset = offsetof(NormTraits, bias),
                         .values = kFloatNames,
                         .help = "dtype of the bias; null = none",
                         .says = " bias {}",
                         .when = Says::when_set,
                         .null_if_unset = true};
constexpr Field kResidual = {.name = "residual",
                             .kind = FieldKind::flag,
                             .offset = offsetof(NormTraits, residual),
                             .otherwise = "false",
                             .help = "the call has a residual",
                             .says = " residual",
                             .when = Says::when_set};
constexpr Field kActivation = {.name = "activation",
                               .kind = FieldKind::choice,
                               .offset = offsetof(NormTraits, activation),
                               .values = kPlainActivationNames,
                               .otherwise = "none",
                               .help = "of the outputs",
                               .says = " {}",
                               .when = Says::when_set};
constexpr Field kVector = {
    .name = "vector",
    .kind = FieldKind::integer,
    .offset = offsetof(NormTraits, vector),
    .help =
        "elements that are read at a time, which divide the columns, the strides and the "
        "addresses (16 bytes suffice); default: 16 bytes of x",
    .says = " by {}",
    .when = Says::always,
    .least = 1,
    .most = 8};

constexpr Field kRmsFields[] = {kDtype, kOutDtype, kWeight, kResidual, kActivation, kVector};
constexpr Field kLayerFields[] = {kDtype,    kOutDtype,   kWeight, kBias,
                                  kResidual, kActivation, kVector};

constexpr Field kRowFields[] = {
    {.name = "threads",
     .kind = FieldKind::integer,
     .offset = offsetof(NormConfig, threads),
     .help = "threads of a row, in each thread block of its cluster"},
    {.name = "vectors",
     .kind = FieldKind::integer,
     .offset = offsetof(NormConfig, vectors),
     .help = "accesses of a thread"},
    {.name = "rows_per_block",
     .kind = FieldKind::integer,
     .offset = offsetof(NormConfig, rows_per_block),
     .help = "rows that a thread block computes side by side"},
    {.name = "cluster",
     .kind = FieldKind::integer,
     .offset = offsetof(NormConfig, cluster),
     .help = "thread blocks that share a row"},
};

constexpr Field kSplitRowFields[] = {
    {.name = "threads",
     .kind = FieldKind::integer,
     .offset = offsetof(NormSplitConfig, threads),
     .help = "threads of a thread block, which has a part of a row"},
    {.name = "vectors",
     .kind = FieldKind::integer,
     .offset = offsetof(NormSplitConfig, vectors),
     .help = "accesses of a thread"},
    {.name = "launch",
     .kind = FieldKind::integer,
     .offset = offsetof(NormSplitConfig, launch),
     .help = "of the two launches that share rows, the first or the second"},
};

const NormConfig& whole(int row) { return norm_configs()[static_cast<std::size_t>(row)]; }
template <int kLaunch>
const NormSplitConfig& part(int row) {
  return norm_split_configs(kLaunch)[static_cast<std::size_t>(row)];
}

Footprint whole_footprint(const Specialization& spec) {
  const NormConfig& config = whole(spec.row());
  return {static_cast<unsigned>(config.threads * config.rows_per_block),
          static_cast<unsigned>(shared_bytes(config, spec.traits_as<NormTraits>(), spec.arch()))};
}

Footprint part_footprint(const Specialization& spec) {
  return {static_cast<unsigned>(part<1>(spec.row()).threads), 0};
}

constexpr Template whole_template(const Family* family) {
  return {.family = family,
          .path = "portable",
          .file = "norm/norm.cuh",
          .means = "one launch, a row in registers",
          .row_fields = kRowFields,
          .row = [](int row) -> const void* { return &whole(row); },
          .tile = [](int row) { return tile_name(whole(row)); },
          .reason = [](int row) { return whole(row).reason; },
          .footprint = whole_footprint,
          .render = render_norm};
}

template <int kLaunch>
constexpr Template part_template(const Family* family) {
  return {.family = family,
          .path = "split",
          .file = "norm/split.cuh",
          .means = "two launches, thread blocks share a row",
          .row_fields = kSplitRowFields,
          .row = [](int row) -> const void* { return &part<kLaunch>(row); },
          .tile = [](int row) { return tile_name(part<kLaunch>(row)); },
          .reason = [](int row) { return part<kLaunch>(row).reason; },
          .footprint = part_footprint,
          .render = kLaunch == 1 ? render_norm_partial : render_norm_apply};
}

constexpr std::array<Template, 3> templates_of(const Family* family) {
  return {whole_template(family), part_template<1>(family), part_template<2>(family)};
}

template <NormKind kKind>
void settle(Traits& words, const UserTexts&, int) {
  auto t = as<NormTraits>(words);
  t.kind = kKind;
  const int most = 16 / size_of(t.input);
  if (t.output == DType::none) t.output = t.input;
  if (t.vector == 0) t.vector = static_cast<std::uint16_t>(most);
  if (!std::has_single_bit(t.vector) || t.vector > most) {
    refuse_field("vector", "must be a power of two up to " + std::to_string(most) + " for " +
                               name(t.input) + ", got " + std::to_string(t.vector));
  }
  words = std::bit_cast<Traits>(t);
}

std::vector<Specialization> kernels_of(const Family& family, const Traits& words, int arch) {
  const auto traits = as<NormTraits>(words);
  std::vector<Specialization> specs;
  for (int row : norm_rows(arch)) {
    specs.emplace_back(norm_template(family, NormTemplate::whole), arch, row, traits);
  }
  for (int row : norm_split_rows()) {
    specs.emplace_back(norm_template(family, NormTemplate::partial), arch, row, traits);
    specs.emplace_back(norm_template(family, NormTemplate::apply), arch, row, traits);
  }
  return specs;
}

constexpr std::array<Template, 3> kRmsTemplates = templates_of(&kRmsNorm);
constexpr std::array<Template, 3> kLayerTemplates = templates_of(&kLayerNorm);

}  // namespace

const Template& norm_template(const Family& family, NormTemplate which) {
  return family.templates[static_cast<std::size_t>(which)];
}

constinit const Family kRmsNorm = {
    .name = "rms_norm",
    .title = "RMS norm",
    .templates = kRmsTemplates,
    .fields = kRmsFields,
    .settle = settle<NormKind::rms>,
    .kernels = [](const Traits& t, int arch, Kernels) { return kernels_of(kRmsNorm, t, arch); },
    .samples = [](int arch) { return norm_samples(NormKind::rms, arch); }};

constinit const Family kLayerNorm = {
    .name = "layer_norm",
    .title = "layer norm",
    .templates = kLayerTemplates,
    .fields = kLayerFields,
    .settle = settle<NormKind::layer>,
    .kernels = [](const Traits& t, int arch, Kernels) { return kernels_of(kLayerNorm, t, arch); },
    .samples = [](int arch) { return norm_samples(NormKind::layer, arch); }};

}  // namespace kiln
