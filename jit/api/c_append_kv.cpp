// Appending to a cache, of kiln/c_serving.h.
#include "jit/api/c_call.h"
#include "kiln/append_kv.h"
#include "kiln/c_serving.h"

namespace kiln {
namespace {

constexpr const char* kAppendOp = "append_kv";

AppendKvOptions append_options_of(const kiln_append_kv_options* given) {
  AppendKvOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_append_kv_options");
  const auto view = [](const char* name, const kiln_tensor* tensor) {
    return view_of(kAppendOp, name, tensor);
  };
  options.k_scale = view("k_scale", c.k_scale), options.v_scale = view("v_scale", c.v_scale);
  options.query = view("query", c.query), options.query_out = view("query_out", c.query_out);
  options.q_weight = view("q_weight", c.q_weight);
  options.k_weight = view("k_weight", c.k_weight);
  if (c.eps != nullptr) options.eps = *c.eps;
  options.positions = view("positions", c.positions);
  options.cos = view("cos", c.cos), options.sin = view("sin", c.sin);
  options.interleaved = c.interleaved != 0;
  return options;
}

struct AppendViews {
  TensorView key, value, k_cache, v_cache, slot_mapping;
};
AppendViews append_views_of(const kiln_tensor* key, const kiln_tensor* value,
                            const kiln_tensor* k_cache, const kiln_tensor* v_cache,
                            const kiln_tensor* slot_mapping) {
  return {view_of(kAppendOp, "key", key), view_of(kAppendOp, "value", value),
          view_of(kAppendOp, "k_cache", k_cache), view_of(kAppendOp, "v_cache", v_cache),
          view_of(kAppendOp, "slot_mapping", slot_mapping)};
}

}  // namespace
}  // namespace kiln

extern "C" {

kiln_status kiln_append_kv(const kiln_tensor* key, const kiln_tensor* value,
                           const kiln_tensor* k_cache, const kiln_tensor* v_cache,
                           const kiln_tensor* slot_mapping, const kiln_append_kv_options* options,
                           void* stream) {
  return kiln::run_c([&] {
    const auto views = kiln::append_views_of(key, value, k_cache, v_cache, slot_mapping);
    kiln::append_kv(views.key, views.value, views.k_cache, views.v_cache, views.slot_mapping,
                    kiln::append_options_of(options), stream);
  });
}

kiln_status kiln_plan_append_kv(const kiln_tensor* key, const kiln_tensor* value,
                                const kiln_tensor* k_cache, const kiln_tensor* v_cache,
                                const kiln_tensor* slot_mapping,
                                const kiln_append_kv_options* options, kiln_plan** plan) {
  return kiln::create("kiln_plan_append_kv", "plan", plan, [&] {
    const auto views = kiln::append_views_of(key, value, k_cache, v_cache, slot_mapping);
    return kiln::plan_append_kv(views.key, views.value, views.k_cache, views.v_cache,
                                views.slot_mapping, kiln::append_options_of(options));
  });
}

}  // extern "C"
