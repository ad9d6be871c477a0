// Copying of keys ahead of attention as a row of families(): a small kernel for each pair of
// dtypes, see copy_keys.h.
#include <bit>
#include <cstddef>

#include "jit/attention/copy_keys.h"
#include "jit/attention/family.h"
#include "jit/attention/traits.h"
#include "jit/op/arch.h"
#include "jit/op/source_text.h"
#include "templates/attention/params.h"
#include "templates/copy_keys/params.h"

namespace kiln {
namespace {

// The kernel of the launch knows the dtypes alone.
AttentionTraits copier_traits(DType cache, DType dtype) {
  AttentionTraits traits;
  traits.set_dtype(dtype);
  traits.k = traits.v = cache;
  return traits;
}

constexpr Field kCopierFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, q),
     .values = kHalfNames,
     .otherwise = "bfloat16",
     .help = "of the copied keys and values, which q has too",
     .says = " to {}",
     .when = Says::always},
    {.name = "cache_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(AttentionTraits, k),
     .values = kQuantizedNames,
     .help = "of a quantised cache, which the copies widen; null = dtype",
     .says = " of {}",
     .when = Says::when_set,
     .applies = [](const Traits& t) { return as<AttentionTraits>(t).has_quantized_cache(); }},
};

std::string render_copier(const Specialization& spec, const UserTexts&) {
  const auto traits = spec.traits_as<AttentionTraits>();
  SourceText text;
  text << "#include \"/kiln/copy_keys/copy_keys.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Element = " << device_type(traits.q) << ";\n"
       << "  using CacheElement = " << device_type(traits.k) << ";\n"
       << "};\n"
       << "extern \"C\" __global__ void __launch_bounds__(kiln::kCopyKeysThreads)\n"
       << kEntryName << "(const __grid_constant__ kiln::CopyParams args) {\n"
       << "  kiln::copy_keys<Config>(args);\n}\n";
  return text.str();
}

std::string why_not_copy(const Traits&, int arch) {
  return arch_table()[static_cast<std::size_t>(arch)].number == 90
             ? ""
             : "the kernels that read copied keys are those of sm_90a";
}

constexpr int kCopierRow = 0;  // of a table without properties

constexpr Template kCopierTemplates[] = {
    {.family = &kCopyKeys,
     .path = "copy",
     .file = "copy_keys/copy_keys.cuh",
     .means = "16 bytes of each thread at a time",
     .row_fields = {},
     .row = [](int) -> const void* { return &kCopierRow; },
     .tile = [](int) { return std::to_string(kCopiedRows) + " rows"; },
     .reason = [](int) { return std::string_view("four reads of a thread are under way"); },
     .why_not = why_not_copy,
     .footprint = [](const Specialization&) { return Footprint{kCopyKeysThreads, 0}; },
     .render = render_copier}};

void settle_copier(Traits& words, const UserTexts&, int) {
  const auto traits = as<AttentionTraits>(words);
  const DType cache = traits.has_quantized_cache() ? traits.k : traits.q;
  words = std::bit_cast<Traits>(copier_traits(cache, traits.q));
}

std::vector<Specialization> copier_kernels(const Traits& words, int arch, Kernels) {
  if (!why_not_copy(words, arch).empty()) return {};
  return {key_copier(as<AttentionTraits>(words), arch)};
}

std::vector<Specialization> copier_samples(int arch) {
  std::vector<Specialization> specs;
  if (!why_not_copy({}, arch).empty()) return specs;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    specs.push_back(key_copier(copier_traits(dtype, dtype), arch));
    for (const Named& bytes : kQuantizedNames) {
      specs.push_back(key_copier(copier_traits(static_cast<DType>(bytes.value), dtype), arch));
    }
  }
  return specs;
}

}  // namespace

Specialization key_copier(const AttentionTraits& call, int arch) {
  return Specialization(kKeyCopier, arch, 0, copier_traits(call.k, call.q));
}

constinit const Template& kKeyCopier = kCopierTemplates[0];

constinit const Family kCopyKeys = {.name = "copy_keys",
                                    .title = "copying of keys ahead of attention",
                                    .templates = kCopierTemplates,
                                    .fields = kCopierFields,
                                    .settle = settle_copier,
                                    .kernels = copier_kernels,
                                    .samples = copier_samples};

}  // namespace kiln
