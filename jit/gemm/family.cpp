#include "jit/gemm/family.h"

#include <bit>
#include <cstddef>

#include "jit/gemm/checks.h"
#include "jit/gemm/config.h"
#include "jit/gemm/render.h"
#include "jit/gemm/samples.h"
#include "jit/gemm/tensor_maps.h"
#include "jit/gemm/tuning.h"
#include "jit/gemm/user_epilogue.h"
#include "jit/op/checks.h"

namespace kiln {
namespace {

constexpr Named kLayoutNames[] = {{"nn", 0}, {"nt", 1}, {"tn", 2}, {"tt", 3}};

std::string layout_name(const Traits& words) {
  const auto t = as<GemmTraits>(words);
  return std::string(t.major_a == Major::k ? "n" : "t") + (t.major_b == Major::k ? "t" : "n");
}

void set_layout(Traits& words, std::string_view layout) {
  auto t = as<GemmTraits>(words);
  t.major_a = layout[0] == 'n' ? Major::k : Major::mn;
  t.major_b = layout[1] == 't' ? Major::k : Major::mn;
  words = std::bit_cast<Traits>(t);
}

std::string dtype_b_name(const Traits& words) { return name(as<GemmTraits>(words).dtype_b()); }

void set_dtype_b(Traits& words, std::string_view dtype) {
  auto t = as<GemmTraits>(words);
  t.input_b = static_cast<DType>(value_of(kOperandNames, dtype).value_or(0));
  words = std::bit_cast<Traits>(t);
}

std::string tell_dtype_b(const Traits& words) {
  const auto t = as<GemmTraits>(words);
  return t.input_b == DType::none ? "" : std::string(" x ") + name(t.input_b);
}

std::string tell_output(const Traits& words) {
  const auto t = as<GemmTraits>(words);
  return t.output == t.input ? "" : std::string(" -> ") + name(t.output);
}

std::string tell_gate(const Traits& words) {
  return as<GemmTraits>(words).gate == Gate::interleaved ? " interleaved" : "";
}

std::string tell_stores(const Traits& words) {
  const Access stores = as<GemmTraits>(words).stores;
  return stores == Access::elements ? " unaligned stores"
         : stores == Access::boxes  ? " boxed stores"
                                    : "";
}

constexpr Field kFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, input),
     .values = kOperandNames,
     .otherwise = "bfloat16",
     .help = "of a and b; float32 as tf32; 8-bit floats: sm_90a, layout nt, loads not elements",
     .says = " {}",
     .when = Says::always},
    {.name = "dtype_b",
     .kind = FieldKind::choice,
     .values = kOperandNames,
     .help = "of b, where it is not dtype: only if both are 8-bit floats",
     .get = dtype_b_name,
     .set = set_dtype_b,
     .tell = tell_dtype_b},
    {.name = "layout",
     .kind = FieldKind::choice,
     .values = kLayoutNames,
     .otherwise = "nt",
     .help = "of a, then of b: n = rows contiguous, t = columns contiguous (stored transposed)",
     .says = " {}",
     .when = Says::always,
     .get = layout_name,
     .set = set_layout},
    {.name = "out_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, output),
     .values = kOutputNames,
     .help = "default: dtype; bfloat16 for 8-bit floats",
     .tell = tell_output},
    {.name = "accumulator",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, accumulator),
     .values = kAccumulatorNames,
     .otherwise = "float32",
     .help = "float16: for dtype float16",
     .says = " accumulating {}",
     .when = Says::when_set},
    {.name = "precision",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, fast),
     .values = kPrecisionNames,
     .otherwise = "full",
     .help = "fast: sums of 8-bit floats stay in the tensor cores",
     .says = " {}",
     .when = Says::when_set},
    {.name = "scale_a",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, scale_a),
     .values = kScaleANames,
     .otherwise = "none",
     .help = "tensor: a factor of all outputs; vector: one for each row; groups: one for each row "
             "and 128 of K, of 8-bit floats with such a scale_b",
     .says = " scale_a {}",
     .when = Says::when_set},
    {.name = "scale_b",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, scale_b),
     .values = kScaleBNames,
     .otherwise = "none",
     .help = "tensor: a factor of all outputs; vector: one for each column; groups: one for each "
             "column and 128 of K; blocks: one for each 128 columns and 128 of K",
     .says = " scale_b {}",
     .when = Says::when_set},
    {.name = "scale_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, scale_dtype),
     .values = kScaleDTypeNames,
     .otherwise = "float32",
     .help = "of scale_a and scale_b; float8_e8m0fnu: only where scale_a is groups",
     .says = " scales {}",
     .when = Says::when_set},
    {.name = "bias",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, bias),
     .values = kFloatNames,
     .help = "dtype of the bias; null = none",
     .says = " bias",
     .when = Says::when_set,
     .null_if_unset = true},
    {.name = "activation",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, activation),
     .values = kActivationNames,
     .otherwise = "none",
     .help = "of the outputs; swiglu, geglu and geglu_tanh are gated",
     .says = " {}",
     .when = Says::when_set},
    {.name = "gate",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, gate),
     .values = kGateNames,
     .help = "of a gated activation: which columns of b are gates; default: halves",
     .null_if_unset = true,
     .tell = tell_gate},
    {.name = "residual",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, residual),
     .values = kFloatNames,
     .help = "dtype of the residual; null = none",
     .says = " residual",
     .when = Says::when_set,
     .null_if_unset = true},
    {.name = "epilogue",
     .kind = FieldKind::expression,
     .offset = offsetof(GemmTraits, epilogue),
     .help = "a C++ expression of acc, bias, residual, row, col, batch, m and n, or an object with "
             "parameters and tensors; null = none",
     .says = " epilogue \"{}\"",
     .when = Says::when_set},
    {.name = "grouping",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, grouping),
     .values = kGroupingNames,
     .otherwise = "none",
     .help =
         "of rows that are multiplied by matrices of their own: offsets, one after another in a, "
         "or counts, each with room for as many",
     .says = " groups by {}",
     .when = Says::when_set},
    {.name = "loads",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, loads),
     .values = kAccessNames,
     .otherwise = "vectors",
     .help = "what a and b admit: vectors (bases, strides and rows are multiples of 16 bytes), "
             "boxes (all but the rows) or elements",
     .says = " unaligned loads",
     .when = Says::when_unset,
     .unset_reason = "element-wise loads: a or b is not 16-byte aligned in base or strides"},
    {.name = "stores",
     .kind = FieldKind::choice,
     .offset = offsetof(GemmTraits, stores),
     .values = kAccessNames,
     .otherwise = "vectors",
     .help = "what out, bias and residual admit, and a scale of columns: vectors, boxes (only what "
             "is read beside out has no vectors) or elements",
     .tell = tell_stores},
};

constexpr Field kPortableRowFields[] = {
    {.name = "block_m",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmConfig, block_m),
     .help = "rows of a tile"},
    {.name = "block_n",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmConfig, block_n),
     .help = "columns of a tile"},
    {.name = "block_k",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmConfig, block_k),
     .help = "of K that is read at a time"},
    {.name = "stages",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmConfig, stages),
     .help = "tiles of K in shared memory"},
};

constexpr Field kSm90RowFields[] = {
    {.name = "block_m",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmSm90Config, block_m),
     .help = "rows of a tile"},
    {.name = "block_n",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmSm90Config, block_n),
     .help = "columns of a tile"},
    {.name = "block_k",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmSm90Config, block_k),
     .help = "of K that is read at a time"},
    {.name = "stages",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmSm90Config, stages),
     .help = "tiles of K in shared memory"},
    {.name = "cluster",
     .kind = FieldKind::integer,
     .offset = offsetof(GemmSm90Config, cluster),
     .help = "of sm_90a rows: thread blocks that share columns"},
    {.name = "splits",
     .kind = FieldKind::flag,
     .offset = offsetof(GemmSm90Config, splits),
     .help = "rows whose thread blocks may share K, or those whose do not; null = all"},
};

Footprint portable_footprint(const Specialization& spec) {
  const GemmConfig& config = gemm_config(spec.row());
  return {static_cast<unsigned>(config.warps_m * config.warps_n) * 32,
          static_cast<unsigned>(shared_bytes(config))};
}

Footprint sm90_footprint(const Specialization& spec) {
  const GemmSm90Config& config = gemm_sm90_config(spec.row());
  return {static_cast<unsigned>(config.groups + 1) * 128,
          static_cast<unsigned>(shared_bytes(config, spec.traits_as<GemmTraits>()))};
}

void settle_operands(GemmTraits& t) {
  const bool f8 = is_f8(t.input);
  if (t.input_b == t.input) t.input_b = DType::none;
  if (t.input_b != DType::none && !(f8 && is_f8(t.input_b))) {
    refuse_field("dtype_b", std::string("must be dtype, or both are 8-bit floats; got '") +
                                name(t.input_b) + "' for '" + name(t.input) + "'");
  }
  if (t.fast && !f8) refuse_field("precision", "fast needs a dtype of 8-bit floats");
  if (t.accumulator == Accumulator::f16 && t.input != DType::f16) {
    refuse_field("accumulator", "float16 needs dtype float16");
  }
  if (t.output == DType::none) t.output = gemm_output_dtype(t.input);
}

void settle_scales(const GemmTraits& t) {
  if (is_of_blocks(t.scale_a) != is_of_blocks(t.scale_b)) {
    refuse_field("scale_a", "must be groups where scale_b is groups or blocks, and only there");
  }
  if (!t.block_scaled()) {
    if (t.scale_dtype == DType::none) return;
    refuse_field("scale_dtype", "float8_e8m0fnu needs scale_a groups");
  }
  if (!is_f8(t.input)) refuse_field("scale_a", "groups needs a dtype of 8-bit floats");
  if (t.fast) refuse_field("precision", "fast is not for scales of groups or blocks");
  if (is_gated(t.activation)) {
    refuse_field("activation", "must not be gated where scales are of groups or blocks");
  }
}

void settle_epilogue(GemmTraits& t, const UserTexts& texts) {
  if (is_gated(t.activation)) {
    if (t.gate == Gate::none) t.gate = Gate::halves;
  } else if (t.gate != Gate::none) {
    refuse_field("gate", "needs activation swiglu, geglu or geglu_tanh");
  }
  if (texts.epilogue.empty()) return;
  if (t.activation != Activation::none) refuse_spec("give 'epilogue' or 'activation', not both");
  t.epilogue = texts.epilogue_values != nullptr ? Epilogue(*texts.epilogue_values).digest()
                                                : epilogue_digest(texts.epilogue);
  check_epilogue_names(epilogue_names(texts.epilogue),
                       {t.bias != DType::none, t.residual != DType::none});
}

void settle_groups(const GemmTraits& t) {
  if (t.grouping != Grouping::none && t.major_a != Major::k) {
    refuse_field("layout", "must be nn or nt where grouping is offsets or counts");
  }
}

void settle(Traits& words, const UserTexts& texts, int arch) {
  auto t = as<GemmTraits>(words);
  settle_operands(t);
  settle_scales(t);
  settle_groups(t);
  settle_epilogue(t, texts);
  if (is_f8(t.input)) {
    const std::string reason = why_not_sm90(t, arch);
    if (!reason.empty())
      refuse_spec(std::string(name(t.input)) + " is for sm_90a alone: " + reason);
  }
  words = std::bit_cast<Traits>(t);
}

std::vector<Specialization> kernels(const Traits& words, int arch, Kernels which) {
  const auto traits = as<GemmTraits>(words);
  std::vector<Specialization> specs;
  for (const GemmRow row :
       which == Kernels::all ? all_gemm_rows(traits, arch) : gemm_rows(traits, arch)) {
    specs.push_back(gemm_specialization(arch, row, traits));
  }
  return specs;
}

// The additions of scaled products, of which NVRTC lets every second yield in most runs from 12.9
// on; before, none does, and kernels of 128 rows take up to 1.19 times as long
// (docs/performance/yields.md). Tiles of 192 columns start products in turns, which yields disturb
// (1.05 to 1.08 with 13.0).
constexpr YieldRule kScaledYields[] = {{YieldKind::multiply_add, 2, /*keeps_choice=*/true}};

std::span<const YieldRule> sm90_yields(const Specialization& spec) {
  const GemmSm90Config& config = gemm_sm90_config(spec.row());
  const bool is_scaled = spec.traits_as<GemmTraits>().block_scaled();
  if (!is_scaled || config.block_m != 128 || config.block_n == 192) return {};
  return kScaledYields;
}

constexpr Template kTemplates[] = {
    {.family = &kGemm,
     .path = "portable",
     .file = "gemm/gemm.cuh",
     .means = "mma.sync, cp.async",
     .row_fields = kPortableRowFields,
     .row = [](int row) -> const void* { return &gemm_config(row); },
     .tile = [](int row) { return tile_name(gemm_config(row)); },
     .reason = [](int row) { return gemm_config(row).reason; },
     .footprint = portable_footprint,
     .render = render_gemm},
    {.family = &kGemm,
     .path = "sm_90a",
     .file = "gemm/sm90/gemm.cuh",
     .means = "wgmma, tensor memory accelerator",
     .arch_specific = true,
     .row_fields = kSm90RowFields,
     .row = [](int row) -> const void* { return &gemm_sm90_config(row); },
     .tile = [](int row) { return tile_name(gemm_sm90_config(row)); },
     .reason = [](int row) { return gemm_sm90_config(row).reason; },
     .why_not = [](const Traits& t, int arch) { return why_not_sm90(as<GemmTraits>(t), arch); },
     .footprint = sm90_footprint,
     .render = render_gemm_sm90,
     .yields = sm90_yields,
     .pack = pack_gemm_sm90},
};

}  // namespace

constinit const Template& kGemmPortable = kTemplates[0];
constinit const Template& kGemmSm90 = kTemplates[1];

constinit const Family kGemm = {.name = "gemm",
                                .title = "GEMM",
                                .templates = kTemplates,
                                .fields = kFields,
                                .settle = settle,
                                .kernels = kernels,
                                .samples = gemm_samples,
                                .tuning = &kGemmTuning};

}  // namespace kiln
