// The norms of kiln/c.h.
#include "jit/api/c_norm.h"

#include "jit/api/c_call.h"

namespace kiln {

NormOptions options_of(const char* op, const kiln_norm_options* given) {
  NormOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_norm_options");
  if (c.eps != nullptr) options.eps = *c.eps;
  options.residual = view_of(op, "residual", c.residual);
  options.residual_out = view_of(op, "residual_out", c.residual_out);
  options.weight_offset = c.weight_offset;
  options.activation = enum_of({op, "activation"}, c.activation, Activation::geglu_tanh);
  options.workspace = {c.allocate, c.allocate_context};
  return options;
}

namespace {

struct NormViews {
  TensorView x, weight, bias, out;
};
NormViews views_of(const char* op, const kiln_tensor* x, const kiln_tensor* weight,
                   const kiln_tensor* bias, const kiln_tensor* out) {
  return {view_of(op, "x", x), view_of(op, "weight", weight), view_of(op, "bias", bias),
          view_of(op, "out", out)};
}

constexpr const char* kRms = "rms_norm";
constexpr const char* kLayer = "layer_norm";

}  // namespace
}  // namespace kiln

extern "C" {

kiln_status kiln_rms_norm(const kiln_tensor* x, const kiln_tensor* weight, const kiln_tensor* out,
                          const kiln_norm_options* options, void* stream) {
  return kiln::run_c([&] {
    const auto views = kiln::views_of(kiln::kRms, x, weight, nullptr, out);
    kiln::rms_norm(views.x, views.weight, views.out, kiln::options_of(kiln::kRms, options), stream);
  });
}

kiln_status kiln_layer_norm(const kiln_tensor* x, const kiln_tensor* weight,
                            const kiln_tensor* bias, const kiln_tensor* out,
                            const kiln_norm_options* options, void* stream) {
  return kiln::run_c([&] {
    const auto views = kiln::views_of(kiln::kLayer, x, weight, bias, out);
    kiln::layer_norm(views.x, views.weight, views.bias, views.out,
                     kiln::options_of(kiln::kLayer, options), stream);
  });
}

kiln_status kiln_plan_rms_norm(const kiln_tensor* x, const kiln_tensor* weight,
                               const kiln_tensor* out, const kiln_norm_options* options,
                               kiln_plan** plan) {
  return kiln::create("kiln_plan_rms_norm", "plan", plan, [&] {
    const auto views = kiln::views_of(kiln::kRms, x, weight, nullptr, out);
    return kiln::plan_rms_norm(views.x, views.weight, views.out,
                               kiln::options_of(kiln::kRms, options));
  });
}

kiln_status kiln_plan_layer_norm(const kiln_tensor* x, const kiln_tensor* weight,
                                 const kiln_tensor* bias, const kiln_tensor* out,
                                 const kiln_norm_options* options, kiln_plan** plan) {
  return kiln::create("kiln_plan_layer_norm", "plan", plan, [&] {
    const auto views = kiln::views_of(kiln::kLayer, x, weight, bias, out);
    return kiln::plan_layer_norm(views.x, views.weight, views.bias, views.out,
                                 kiln::options_of(kiln::kLayer, options));
  });
}

}  // extern "C"
