#include "jit/quantize/family.h"

#include <bit>
#include <cstddef>

#include "jit/quantize/config.h"
#include "jit/quantize/render.h"
#include "jit/quantize/samples.h"
#include "templates/quantize/params.h"

namespace kiln {
namespace {

constexpr Named kScaleDTypes[] = {{"float32", false}, {"float8_e8m0fnu", true}};

constexpr Field kQuantizeFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(QuantizeTraits, input),
     .values = kFloatNames,
     .otherwise = "bfloat16",
     .help = "of x",
     .says = " {}",
     .when = Says::always},
    {.name = "out_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(QuantizeTraits, output),
     .values = kQuantizedNames,
     .otherwise = "float8_e4m3fn",
     .help = "of out",
     .says = " -> {}",
     .when = Says::always},
    {.name = "activation",
     .kind = FieldKind::choice,
     .offset = offsetof(QuantizeTraits, activation),
     .values = kGateActivationNames,
     .otherwise = "none",
     .help = "of the gates in the first half of x",
     .says = " {}",
     .when = Says::when_set},
    {.name = "scale_power_of_two",
     .kind = FieldKind::flag,
     .offset = offsetof(QuantizeTraits, power_of_two),
     .otherwise = "false",
     .help = "scales are rounded up to powers of two",
     .says = " powers of two",
     .when = Says::when_set},
    {.name = "scale_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(QuantizeTraits, byte_scales),
     .values = kScaleDTypes,
     .otherwise = "float32",
     .help = "of scale_out; float8_e8m0fnu rounds scales up to powers of two",
     .says = " scales {}",
     .when = Says::when_set},
    {.name = "counts",
     .kind = FieldKind::flag,
     .offset = offsetof(QuantizeTraits, counts),
     .otherwise = "false",
     .help = "the call has counts of each expert's rows",
     .says = " counts",
     .when = Says::when_set},
    {.name = "vector",
     .kind = FieldKind::integer,
     .offset = offsetof(QuantizeTraits, vector),
     .help = "elements that are read at a time, which divide the columns, the groups, the strides "
             "and the addresses (16 bytes suffice); default: 8",
     .says = " by {}",
     .when = Says::always,
     .least = 1,
     .most = 8},
};

constexpr Field kQuantizeRowFields[] = {
    {.name = "lanes",
     .kind = FieldKind::integer,
     .offset = offsetof(QuantizeConfig, lanes),
     .help = "threads that share a group of columns, in each thread block of its cluster"},
    {.name = "vectors",
     .kind = FieldKind::integer,
     .offset = offsetof(QuantizeConfig, vectors),
     .help = "accesses of each of them at a time"},
    {.name = "cluster",
     .kind = FieldKind::integer,
     .offset = offsetof(QuantizeConfig, cluster),
     .help = "thread blocks that share a group of columns"},
    {.name = "turns",
     .kind = FieldKind::flag,
     .offset = offsetof(QuantizeConfig, turns),
     .help = "a group may have more accesses, in turns"},
    {.name = "keeps",
     .kind = FieldKind::flag,
     .offset = offsetof(QuantizeConfig, keeps),
     .help = "shared memory keeps these turns; else a group of several is read twice"},
};

const QuantizeConfig& quantize_config_at(int row) {
  return quantize_configs()[static_cast<std::size_t>(row)];
}

constexpr Template kQuantizeTemplates[] = {
    {.family = &kQuantize,
     .path = "portable",
     .file = "quantize/quantize.cuh",
     .means = "one launch, a group of columns in registers or shared memory",
     .row_fields = kQuantizeRowFields,
     .row = [](int row) -> const void* { return &quantize_config_at(row); },
     .tile = [](int row) { return tile_name(quantize_config_at(row)); },
     .reason = [](int row) { return quantize_config_at(row).reason; },
     .footprint =
         [](const Specialization& spec) {
           const QuantizeConfig& config = quantize_config_at(spec.row());
           return Footprint{static_cast<unsigned>(quantize_threads(config.lanes)),
                            static_cast<unsigned>(most_kept_bytes(config, spec.arch()))};
         },
     .render = render_quantize}};

void settle_quantize(Traits& words, const UserTexts&, int) {
  auto t = as<QuantizeTraits>(words);
  if (t.vector == 0) t.vector = 8;
  if (t.byte_scales) t.power_of_two = true;
  if (!std::has_single_bit(t.vector)) {
    refuse_field("vector", "must be a power of two up to 8, got " + std::to_string(t.vector));
  }
  words = std::bit_cast<Traits>(t);
}

std::vector<Specialization> quantize_kernels(const Traits& words, int arch, Kernels) {
  std::vector<Specialization> specs;
  for (int row = 0; row < static_cast<int>(quantize_configs().size()); ++row) {
    if (!admits(quantize_config_at(row), as<QuantizeTraits>(words), arch)) continue;
    specs.emplace_back(quantize_template(), arch, row, as<QuantizeTraits>(words));
  }
  return specs;
}

}  // namespace

const Template& quantize_template() { return kQuantizeTemplates[0]; }

constinit const Family kQuantize = {.name = "quantize",
                                    .title = "quantising",
                                    .templates = kQuantizeTemplates,
                                    .fields = kQuantizeFields,
                                    .settle = settle_quantize,
                                    .kernels = quantize_kernels,
                                    .samples = quantize_samples};

}  // namespace kiln
