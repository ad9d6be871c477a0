// Planning as a row of families(): one small kernel for each kind of mask, whatever the tiles.
#include <bit>
#include <cstddef>

#include "jit/attention/family.h"
#include "jit/attention/plan.h"
#include "jit/attention/render.h"
#include "jit/op/source_text.h"

namespace kiln {
namespace {

constexpr Field kPlanFields[] = {
    {.name = "mask",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, mask),
     .values = kMaskNames,
     .otherwise = "none",
     .help = "of the calls that are planned, as flash_attention's",
     .says = " {}",
     .when = Says::when_set,
     .flag_each = true},
    {.name = "context_parallel",
     .kind = FieldKind::flag,
     .offset = offsetof(AttentionTraits, spread),
     .otherwise = "false",
     .help = "of the calls that are planned, as flash_attention's",
     .says = " context parallel",
     .when = Says::when_set},
    {.name = "variant",
     .kind = FieldKind::variant,
     .offset = offsetof(AttentionTraits, variant),
     .help = "a user's variant; null = none",
     .says = " variant {}",
     .when = Says::when_set},
};

std::string render_planner(const Specialization& spec, const UserTexts& texts) {
  const auto traits = spec.traits_as<AttentionTraits>();
  SourceText text;
  text << "#include \"/kiln/attention/varlen/plan.cuh\"\n\n"
       << "struct Config {\n"
       << "  static constexpr bool kSpread = " << boolean(traits.spread) << ";\n"
       << "};\n"
       << variant_source(traits, texts) << "extern \"C\" __global__ void __launch_bounds__(32)\n"
       << kEntryName << "(const __grid_constant__ kiln::AttentionVarlenArgs<Variant> args) {\n"
       << "  kiln::plan_attention<Config, Variant>(args);\n}\n";
  return text.str();
}

constexpr int kOnlyRow = 0;  // of a table without properties

constexpr Template kPlanTemplates[] = {
    {.family = &kPlanAttention,
     .path = "plan",
     .file = "attention/varlen/plan.cuh",
     .means = "a warp for each thread block of the planned launch",
     .row_fields = {},
     .row = [](int) -> const void* { return &kOnlyRow; },
     .tile = [](int) { return std::string("warp"); },
     .reason = [](int) { return std::string_view("shares of any tile"); },
     .footprint = [](const Specialization&) { return Footprint{32, 0}; },
     .render = render_planner}};

void settle_plan(Traits& words, const UserTexts&, int) {
  words = std::bit_cast<Traits>(planner_traits(as<AttentionTraits>(words)));
}

std::vector<Specialization> plan_kernels(const Traits& words, int arch, Kernels) {
  return {Specialization(kAttentionPlanner, arch, kOnlyRow, as<AttentionTraits>(words))};
}

std::vector<Specialization> plan_samples(int arch) {
  std::vector<Specialization> specs;
  for (const Named& mask : kMaskNames) {
    for (const bool spread : {false, true}) {
      AttentionTraits traits;
      traits.mask = static_cast<Mask>(mask.value);
      if (spread && traits.mask == Mask::tree) continue;  // as attention's samples
      traits.spread = spread;
      specs.emplace_back(kAttentionPlanner, arch, kOnlyRow, traits);
    }
  }
  return specs;
}

}  // namespace

constinit const Template& kAttentionPlanner = kPlanTemplates[0];

AttentionTraits planner_traits(const AttentionTraits& call) {
  AttentionTraits traits;
  traits.mask = call.mask;
  traits.variant = call.variant;
  traits.spread = call.spread;
  return traits;
}

constinit const Family kPlanAttention = {.name = "plan_attention",
                                         .title = "planning",
                                         .templates = kPlanTemplates,
                                         .fields = kPlanFields,
                                         .settle = settle_plan,
                                         .kernels = plan_kernels,
                                         .samples = plan_samples};

}  // namespace kiln
