// Widening as a row of families(): a small kernel for each pair of dtypes, see widen_keys.h.
#include <bit>
#include <cstddef>

#include "jit/attention/family.h"
#include "jit/attention/traits.h"
#include "jit/attention/widen_keys.h"
#include "jit/op/arch.h"
#include "jit/op/source_text.h"
#include "templates/attention/params.h"
#include "templates/widen_keys/params.h"

namespace kiln {
namespace {

// The kernel of the launch knows the dtypes alone.
AttentionTraits widener_traits(DType cache, DType dtype) {
  AttentionTraits traits;
  traits.set_dtype(dtype);
  traits.k = traits.v = cache;
  return traits;
}

constexpr Field kFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, q),
     .values = kHalfNames,
     .otherwise = "bfloat16",
     .help = "of the widened keys and values, which q has too",
     .says = " to {}",
     .when = Says::always},
    {.name = "cache_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, k),
     .values = kQuantizedNames,
     .help = "of the cache",
     .says = " of {}",
     .when = Says::always,
     .required = true},
};

std::string render_widener(const Specialization& spec, const UserTexts&) {
  const auto traits = spec.traits_as<AttentionTraits>();
  SourceText text;
  text << "#include \"/kiln/widen_keys/widen_keys.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Element = " << device_type(traits.q) << ";\n"
       << "  using CacheElement = " << device_type(traits.k) << ";\n"
       << "};\n"
       << "extern \"C\" __global__ void __launch_bounds__(kiln::kWidenThreads)\n"
       << kEntryName << "(const __grid_constant__ kiln::WidenParams args) {\n"
       << "  kiln::widen_keys<Config>(args);\n}\n";
  return text.str();
}

std::string why_not_widen(const Traits&, int arch) {
  return arch_table()[static_cast<std::size_t>(arch)].number == 90
             ? ""
             : "the kernels that read widened keys are those of sm_90a";
}

constexpr int kWidenerRow = 0;  // of a table without properties

constexpr Template kWidenerTemplates[] = {
    {.family = &kWidenKeys,
     .path = "widen",
     .file = "widen_keys/widen_keys.cuh",
     .means = "16 bytes of each thread at a time",
     .row_fields = {},
     .row = [](int) -> const void* { return &kWidenerRow; },
     .tile = [](int) { return std::to_string(kWidenedRows) + " rows"; },
     .reason = [](int) { return std::string_view("four reads of a thread are under way"); },
     .why_not = why_not_widen,
     .footprint = [](const Specialization&) { return Footprint{kWidenThreads, 0}; },
     .render = render_widener}};

void settle_widener(Traits& words, const UserTexts&, int) {
  const auto traits = as<AttentionTraits>(words);
  words = std::bit_cast<Traits>(widener_traits(traits.k, traits.q));
}

std::vector<Specialization> widener_kernels(const Traits& words, int arch, Kernels) {
  if (!why_not_widen(words, arch).empty()) return {};
  return {widener(as<AttentionTraits>(words), arch)};
}

std::vector<Specialization> widener_samples(int arch) {
  std::vector<Specialization> specs;
  if (!why_not_widen({}, arch).empty()) return specs;
  for (const Named& bytes : kQuantizedNames) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      specs.push_back(widener(widener_traits(static_cast<DType>(bytes.value), dtype), arch));
    }
  }
  return specs;
}

}  // namespace

Specialization widener(const AttentionTraits& call, int arch) {
  return Specialization(kKeyWidener, arch, 0, widener_traits(call.k, call.q));
}

constinit const Template& kKeyWidener = kWidenerTemplates[0];

constinit const Family kWidenKeys = {.name = "widen_keys",
                                     .title = "widening of a quantised cache",
                                     .templates = kWidenerTemplates,
                                     .fields = kFields,
                                     .settle = settle_widener,
                                     .kernels = widener_kernels,
                                     .samples = widener_samples};

}  // namespace kiln
