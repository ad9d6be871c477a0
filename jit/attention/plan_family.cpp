// Planning as a row of families(): two small kernels for each kind of mask, whatever the tiles.
#include <bit>
#include <cstddef>

#include "jit/attention/family.h"
#include "jit/attention/plan.h"
#include "jit/attention/render.h"
#include "jit/op/arch.h"
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

// A kernel that includes `file` and calls `function`.
std::string planner_source(const std::string& file, const std::string& config,
                           const std::string& function, const Specialization& spec,
                           const UserTexts& texts) {
  SourceText text;
  text << "#include \"/kiln/" << file << "\"\n\n"
       << config << variant_source(spec.traits_as<AttentionTraits>(), texts)
       << "extern \"C\" __global__ void __launch_bounds__(32)\n"
       << kEntryName << "(const __grid_constant__ kiln::AttentionVarlenArgs<Variant> args) {\n"
       << "  kiln::" << function << "(args);\n}\n";
  return text.str();
}

std::string render_planner(const Specialization& spec, const UserTexts& texts) {
  const auto traits = spec.traits_as<AttentionTraits>();
  const std::string config = std::string("struct Config {\n  static constexpr bool kSpread = ") +
                             boolean(traits.spread) +
                             ", kOverlaps = " + boolean(may_overlap(spec.arch())) + ";\n};\n";
  return planner_source(spec.kernel().file, config, "plan_attention<Config, Variant>", spec, texts);
}

std::string render_shares_planner(const Specialization& spec, const UserTexts& texts) {
  return planner_source(spec.kernel().file, "", "plan_attention_shares<Variant>", spec, texts);
}

// Whether launches of kFlashAttentionSm90 have such traits, of which a planner knows few.
std::string why_no_shares(const Traits& words, int arch) {
  const auto traits = as<AttentionTraits>(words);
  if (arch_table()[static_cast<std::size_t>(arch)].number != 90) {
    return "the kernel whose thread blocks share the keys of long query tiles is that of sm_90a";
  }
  if (traits.mask == Mask::tree) return "a tree masks at most 64 queries of a sequence";
  return traits.spread ? "the keys of a sequence are spread over devices" : "";
}

struct PlannerConfig {
  bool pieces;
};
constexpr PlannerConfig kOfShares = {false}, kOfPieces = {true};

constexpr Field kPlannerFields[] = {
    {.name = "pieces",
     .kind = FieldKind::flag,
     .offset = offsetof(PlannerConfig, pieces),
     .help = "plans prefill of sm_90a whose blocks share keys, or decoding; null = both"},
};

constexpr Template kPlanTemplates[] = {
    {.family = &kPlanAttention,
     .path = "plan",
     .file = "attention/varlen/plan.cuh",
     .means = "a warp for each thread block of the planned launch",
     .row_fields = kPlannerFields,
     .row = [](int) -> const void* { return &kOfShares; },
     .tile = [](int) { return std::string("warp"); },
     .reason = [](int) { return std::string_view("shares of any tile"); },
     .footprint = [](const Specialization&) { return Footprint{32, 0}; },
     .render = render_planner},
    {.family = &kPlanAttention,
     .path = "shares",
     .file = "attention/sm90/plan_shares.cuh",
     .means = "a warp for each thread block of the planned launch of sm_90a",
     .row_fields = kPlannerFields,
     .row = [](int) -> const void* { return &kOfPieces; },
     .tile = [](int) { return std::string("warp for sm_90a"); },
     .reason = [](int) { return std::string_view("pieces of query tiles"); },
     .why_not = why_no_shares,
     .footprint = [](const Specialization&) { return Footprint{32, 0}; },
     .render = render_shares_planner}};

void settle_plan(Traits& words, const UserTexts&, int) {
  words = std::bit_cast<Traits>(planner_traits(as<AttentionTraits>(words)));
}

std::vector<Specialization> plan_kernels(const Traits& words, int arch, Kernels) {
  const auto traits = as<AttentionTraits>(words);
  std::vector<Specialization> specs = {Specialization(kAttentionPlanner, arch, 0, traits)};
  if (why_no_shares(words, arch).empty()) {
    specs.emplace_back(kAttentionSharesPlanner, arch, 0, traits);
  }
  return specs;
}

std::vector<Specialization> plan_samples(int arch) {
  std::vector<Specialization> specs;
  for (const Named& mask : kMaskNames) {
    for (const bool spread : {false, true}) {
      AttentionTraits traits;
      traits.mask = static_cast<Mask>(mask.value);
      if (spread && traits.mask == Mask::tree) continue;  // as attention's samples
      traits.spread = spread;
      for (const Specialization& spec :
           plan_kernels(std::bit_cast<Traits>(traits), arch, Kernels::all)) {
        specs.push_back(spec);
      }
    }
  }
  return specs;
}

}  // namespace

constinit const Template& kAttentionPlanner = kPlanTemplates[0];
constinit const Template& kAttentionSharesPlanner = kPlanTemplates[1];

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
