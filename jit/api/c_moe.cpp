// Mixtures of experts and 8-bit activations, of kiln/c_moe.h.
#include "kiln/c_moe.h"

#include "jit/api/c_call.h"
#include "kiln/moe.h"
#include "kiln/quantize.h"

namespace kiln {
namespace {

static_assert(int(KILN_SCORE_SOFTMAX) == int(MoeScoring::softmax));
static_assert(int(KILN_SCORE_SIGMOID) == int(MoeScoring::sigmoid));

constexpr const char* kQuantizeOp = "quantize";
constexpr const char* kRouteOp = "moe_route";
constexpr const char* kPermuteOp = "moe_permute";
constexpr const char* kUnpermuteOp = "moe_unpermute";

QuantizeOptions quantize_options_of(const kiln_quantize_options* given) {
  QuantizeOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_quantize_options");
  if (c.group != nullptr) options.group = *c.group;
  options.activation = enum_of({kQuantizeOp, "activation"}, c.activation, Activation::geglu_tanh);
  options.scale_power_of_two = c.scale_power_of_two != 0;
  options.counts = view_of(kQuantizeOp, "counts", c.counts);
  return options;
}

MoeRouteOptions route_options_of(const kiln_moe_route_options* given) {
  MoeRouteOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_moe_route_options");
  options.scoring = enum_of({kRouteOp, "scoring"}, c.scoring, MoeScoring::sigmoid);
  options.renormalize = c.keep_sums == 0;
  if (c.scale != nullptr) options.scale = *c.scale;
  options.bias = view_of(kRouteOp, "bias", c.bias);
  if (c.groups != 0) options.groups = c.groups;
  if (c.top_groups != 0) options.top_groups = c.top_groups;
  return options;
}

}  // namespace
}  // namespace kiln

extern "C" {

kiln_status kiln_quantize(const kiln_tensor* x, const kiln_tensor* out, const kiln_tensor* scale,
                          const kiln_quantize_options* options, void* stream) {
  return kiln::run_c([&] {
    kiln::quantize(kiln::view_of(kiln::kQuantizeOp, "x", x),
                   kiln::view_of(kiln::kQuantizeOp, "out", out),
                   kiln::view_of(kiln::kQuantizeOp, "scale", scale),
                   kiln::quantize_options_of(options), stream);
  });
}

kiln_status kiln_plan_quantize(const kiln_tensor* x, const kiln_tensor* out,
                               const kiln_tensor* scale, const kiln_quantize_options* options,
                               kiln_plan** plan) {
  return kiln::create("kiln_plan_quantize", "plan", plan, [&] {
    return kiln::plan_quantize(
        kiln::view_of(kiln::kQuantizeOp, "x", x), kiln::view_of(kiln::kQuantizeOp, "out", out),
        kiln::view_of(kiln::kQuantizeOp, "scale", scale), kiln::quantize_options_of(options));
  });
}

kiln_status kiln_moe_route(const kiln_tensor* logits, const kiln_tensor* weights,
                           const kiln_tensor* experts, const kiln_moe_route_options* options,
                           void* stream) {
  return kiln::run_c([&] {
    kiln::moe_route(kiln::view_of(kiln::kRouteOp, "logits", logits),
                    kiln::view_of(kiln::kRouteOp, "weights", weights),
                    kiln::view_of(kiln::kRouteOp, "experts", experts),
                    kiln::route_options_of(options), stream);
  });
}

kiln_status kiln_plan_moe_route(const kiln_tensor* logits, const kiln_tensor* weights,
                                const kiln_tensor* experts, const kiln_moe_route_options* options,
                                kiln_plan** plan) {
  return kiln::create("kiln_plan_moe_route", "plan", plan, [&] {
    return kiln::plan_moe_route(kiln::view_of(kiln::kRouteOp, "logits", logits),
                                kiln::view_of(kiln::kRouteOp, "weights", weights),
                                kiln::view_of(kiln::kRouteOp, "experts", experts),
                                kiln::route_options_of(options));
  });
}

kiln_status kiln_moe_permute(const kiln_tensor* x, const kiln_tensor* experts,
                             const kiln_tensor* out, const kiln_tensor* offsets,
                             const kiln_tensor* inverse, kiln_allocate allocate,
                             void* allocate_context, void* stream) {
  return kiln::run_c([&] {
    kiln::moe_permute(kiln::view_of(kiln::kPermuteOp, "x", x),
                      kiln::view_of(kiln::kPermuteOp, "experts", experts),
                      kiln::view_of(kiln::kPermuteOp, "out", out),
                      kiln::view_of(kiln::kPermuteOp, "offsets", offsets),
                      kiln::view_of(kiln::kPermuteOp, "inverse", inverse),
                      {allocate, allocate_context}, stream);
  });
}

kiln_status kiln_plan_moe_permute(const kiln_tensor* x, const kiln_tensor* experts,
                                  const kiln_tensor* out, const kiln_tensor* offsets,
                                  const kiln_tensor* inverse, kiln_plan** plan) {
  return kiln::create("kiln_plan_moe_permute", "plan", plan, [&] {
    return kiln::plan_moe_permute(kiln::view_of(kiln::kPermuteOp, "x", x),
                                  kiln::view_of(kiln::kPermuteOp, "experts", experts),
                                  kiln::view_of(kiln::kPermuteOp, "out", out),
                                  kiln::view_of(kiln::kPermuteOp, "offsets", offsets),
                                  kiln::view_of(kiln::kPermuteOp, "inverse", inverse));
  });
}

kiln_status kiln_moe_unpermute(const kiln_tensor* y, const kiln_tensor* inverse,
                               const kiln_tensor* weights, const kiln_tensor* out, void* stream) {
  return kiln::run_c([&] {
    kiln::moe_unpermute(kiln::view_of(kiln::kUnpermuteOp, "y", y),
                        kiln::view_of(kiln::kUnpermuteOp, "inverse", inverse),
                        kiln::view_of(kiln::kUnpermuteOp, "weights", weights),
                        kiln::view_of(kiln::kUnpermuteOp, "out", out), stream);
  });
}

kiln_status kiln_plan_moe_unpermute(const kiln_tensor* y, const kiln_tensor* inverse,
                                    const kiln_tensor* weights, const kiln_tensor* out,
                                    kiln_plan** plan) {
  return kiln::create("kiln_plan_moe_unpermute", "plan", plan, [&] {
    return kiln::plan_moe_unpermute(kiln::view_of(kiln::kUnpermuteOp, "y", y),
                                    kiln::view_of(kiln::kUnpermuteOp, "inverse", inverse),
                                    kiln::view_of(kiln::kUnpermuteOp, "weights", weights),
                                    kiln::view_of(kiln::kUnpermuteOp, "out", out));
  });
}

}  // extern "C"
