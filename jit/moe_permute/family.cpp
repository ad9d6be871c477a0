#include "jit/moe_permute/family.h"

#include <bit>
#include <cstddef>

#include "jit/moe_permute/config.h"
#include "jit/moe_permute/problem.h"
#include "jit/moe_permute/render.h"
#include "jit/op/names.h"
#include "templates/moe_permute/params.h"

namespace kiln {
namespace {

constexpr Named kIndexNames[] = {{"int32", DType::i32}, {"int64", DType::i64}};

constexpr Field kPermuteFields[] = {
    {.name = "index",
     .kind = FieldKind::choice,
     .offset = offsetof(PermuteTraits, index),
     .values = kIndexNames,
     .otherwise = "int32",
     .help = "dtype of experts",
     .says = " {}",
     .when = Says::always},
    {.name = "access",
     .kind = FieldKind::integer,
     .offset = offsetof(PermuteTraits, access),
     .help = "bytes that are copied at a time, which divide rows, strides and addresses; "
             "default: 16",
     .says = " by {} bytes",
     .when = Says::always,
     .least = 1,
     .most = 16},
};

constexpr Field kLaunchFields[] = {
    {.name = "launch",
     .kind = FieldKind::integer,
     .offset = offsetof(LaunchConfig, launch),
     .help = "1 counts the pairs of many tokens, 2 sorts them and copies their rows"},
};

constexpr Field kUnpermuteFields[] = {
    {.name = "dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(UnpermuteTraits, input),
     .values = kFloatNames,
     .otherwise = "bfloat16",
     .help = "of y",
     .says = " {}",
     .when = Says::always},
    {.name = "out_dtype",
     .kind = FieldKind::choice,
     .offset = offsetof(UnpermuteTraits, output),
     .values = kFloatNames,
     .help = "default: dtype",
     .tell =
         [](const Traits& words) {
           const auto t = as<UnpermuteTraits>(words);
           return t.output == t.input ? "" : std::string(" -> ") + name(t.output);
         }},
    {.name = "weights",
     .kind = FieldKind::flag,
     .offset = offsetof(UnpermuteTraits, weights),
     .otherwise = "true",
     .help = "the call has weights",
     .says = " without weights",
     .when = Says::when_unset,
     .flag = "--unweighted"},
    {.name = "vector",
     .kind = FieldKind::integer,
     .offset = offsetof(UnpermuteTraits, vector),
     .help = "elements that are read at a time, which divide the columns, the strides and the "
             "addresses (16 bytes suffice); default: 8",
     .says = " by {}",
     .when = Says::always,
     .least = 1,
     .most = 8},
};

template <int kLaunch>
constexpr Template launch_template(const char* means) {
  return {.family = &kMoePermute,
          .path = "portable",
          .file = "moe_permute/permute.cuh",
          .means = means,
          .row_fields = kLaunchFields,
          .row = [](int) -> const void* { return &permute_launches()[kLaunch]; },
          .tile = [](int) { return std::string(permute_launches()[kLaunch].tile); },
          .reason = [](int) { return permute_launches()[kLaunch].reason; },
          .footprint = [](const Specialization&) { return Footprint{kPermuteThreads, 0}; },
          .render = kLaunch == 0 ? render_count : render_sort};
}

constexpr Template kPermuteTemplates[] = {launch_template<0>("a launch that counts"),
                                          launch_template<1>("a launch that sorts and copies")};

constexpr int kUnpermuteRow = 0;  // of a table without properties

constexpr Template kUnpermuteTemplates[] = {
    {.family = &kMoeUnpermute,
     .path = "portable",
     .file = "moe_permute/unpermute.cuh",
     .means = "one launch, sums in registers",
     .row_fields = {},
     .row = [](int) -> const void* { return &kUnpermuteRow; },
     .tile = [](int) { return std::string("warp"); },
     .reason = [](int) { return std::string_view("of any number of tokens"); },
     .footprint = [](const Specialization&) { return Footprint{kUnpermuteThreads, 0}; },
     .render = render_unpermute}};

void settle_permute(Traits& words, const UserTexts&, int) {
  auto t = as<PermuteTraits>(words);
  if (t.access == 0) t.access = 16;
  if (!std::has_single_bit(t.access)) {
    refuse_field("access", "must be a power of two up to 16, got " + std::to_string(t.access));
  }
  words = std::bit_cast<Traits>(t);
}

void settle_unpermute(Traits& words, const UserTexts&, int) {
  auto t = as<UnpermuteTraits>(words);
  if (t.output == DType::none) t.output = t.input;
  if (t.vector == 0) t.vector = 8;
  if (!std::has_single_bit(t.vector)) {
    refuse_field("vector", "must be a power of two up to 8, got " + std::to_string(t.vector));
  }
  words = std::bit_cast<Traits>(t);
}

std::vector<Specialization> permute_kernels(const Traits& words, int arch, Kernels) {
  return {Specialization(kPermuteTemplates[0], arch, 0, as<PermuteTraits>(words)),
          Specialization(kPermuteTemplates[1], arch, 0, as<PermuteTraits>(words))};
}

std::vector<Specialization> unpermute_kernels(const Traits& words, int arch, Kernels) {
  return {Specialization(kUnpermuteTemplates[0], arch, 0, as<UnpermuteTraits>(words))};
}

// Each dtype of experts, and accesses of vectors, elements and bytes.
std::vector<Specialization> permute_samples(int arch) {
  PermuteTraits base, wide, bytes;
  wide.index = DType::i64, wide.access = 4;
  bytes.access = 1;
  return {Specialization(kPermuteTemplates[0], arch, 0, base),
          Specialization(kPermuteTemplates[1], arch, 0, base),
          Specialization(kPermuteTemplates[1], arch, 0, wide),
          Specialization(kPermuteTemplates[1], arch, 0, bytes)};
}

std::vector<Specialization> unpermute_samples(int arch) {
  UnpermuteTraits base, wide, single;
  wide.input = wide.output = DType::f32, wide.vector = 4;
  single.input = DType::f16, single.vector = 1, single.weights = false;
  std::vector<Specialization> specs;
  for (const UnpermuteTraits& traits : {base, wide, single}) {
    specs.emplace_back(kUnpermuteTemplates[0], arch, 0, traits);
  }
  return specs;
}

}  // namespace

const Template& permute_template(PermuteLaunch launch) {
  return kPermuteTemplates[static_cast<std::size_t>(launch)];
}
const Template& unpermute_template() { return kUnpermuteTemplates[0]; }

constinit const Family kMoePermute = {.name = "moe_permute",
                                      .title = "expert sorting",
                                      .templates = kPermuteTemplates,
                                      .fields = kPermuteFields,
                                      .settle = settle_permute,
                                      .kernels = permute_kernels,
                                      .samples = permute_samples};

constinit const Family kMoeUnpermute = {.name = "moe_unpermute",
                                        .title = "expert sums",
                                        .templates = kUnpermuteTemplates,
                                        .fields = kUnpermuteFields,
                                        .settle = settle_unpermute,
                                        .kernels = unpermute_kernels,
                                        .samples = unpermute_samples};

}  // namespace kiln
