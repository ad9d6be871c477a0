// The attention of kiln/c.h.
#include "jit/api/c_call.h"
#include "kiln/attention.h"

namespace kiln {
namespace {

static_assert(int(KILN_BSHD) == int(AttentionLayout::bshd));
static_assert(int(KILN_BHSD) == int(AttentionLayout::bhsd));

struct AttentionViews {
  TensorView q, k, v, out, lse;
};
AttentionViews views_of(const kiln_tensor* q, const kiln_tensor* k, const kiln_tensor* v,
                        const kiln_tensor* out, const kiln_tensor* lse) {
  const char* const op = "flash_attention";
  return {view_of(op, "q", q), view_of(op, "k", k), view_of(op, "v", v), view_of(op, "out", out),
          view_of(op, "lse", lse)};
}

}  // namespace

AttentionOptions options_of(const kiln_attention_options* given, const char* op) {
  AttentionOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_attention_options");
  options.causal = c.causal != 0;
  options.top_left = c.top_left != 0;
  options.layout = enum_of({op, "layout"}, c.layout, AttentionLayout::bhsd);
  if (c.window != nullptr) {
    options.window_left = c.window[0];
    options.window_right = c.window[1];
  }
  if (c.scale != nullptr) options.scale = *c.scale;
  options.softcap = c.softcap;
  options.sinks = view_of(op, "sinks", c.sinks);
  options.alibi_slopes = view_of(op, "alibi_slopes", c.alibi_slopes);
  options.attn_mask = view_of(op, "attn_mask", c.attn_mask);
  if (c.variant != nullptr) options.variant = &c.variant->variant;
  options.workspace = {c.allocate, c.allocate_context};
  return options;
}

SdpaOptions options_of(const kiln_sdpa_options* given) {
  SdpaOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_sdpa_options");
  options.is_causal = c.is_causal != 0;
  options.enable_gqa = c.enable_gqa != 0;
  if (c.scale != nullptr) options.scale = *c.scale;
  options.workspace = {c.allocate, c.allocate_context};
  return options;
}

}  // namespace kiln

extern "C" {

kiln_status kiln_flash_attention(const kiln_tensor* q, const kiln_tensor* k, const kiln_tensor* v,
                                 const kiln_tensor* out, const kiln_tensor* lse,
                                 const kiln_attention_options* options, void* stream) {
  return kiln::run_c([&] {
    const auto views = kiln::views_of(q, k, v, out, lse);
    kiln::flash_attention(views.q, views.k, views.v, views.out, views.lse,
                          kiln::options_of(options), stream);
  });
}

kiln_status kiln_scaled_dot_product_attention(const kiln_tensor* query, const kiln_tensor* key,
                                              const kiln_tensor* value,
                                              const kiln_tensor* attn_mask, const kiln_tensor* out,
                                              const kiln_sdpa_options* options, void* stream) {
  return kiln::run_c([&] {
    const auto view = [](const char* name, const kiln_tensor* tensor) {
      return kiln::view_of("scaled_dot_product_attention", name, tensor);
    };
    kiln::scaled_dot_product_attention(view("query", query), view("key", key), view("value", value),
                                       view("attn_mask", attn_mask), view("out", out),
                                       kiln::options_of(options), stream);
  });
}

kiln_status kiln_plan_flash_attention(const kiln_tensor* q, const kiln_tensor* k,
                                      const kiln_tensor* v, const kiln_tensor* out,
                                      const kiln_tensor* lse, const kiln_attention_options* options,
                                      kiln_plan** plan) {
  return kiln::create("kiln_plan_flash_attention", "plan", plan, [&] {
    const auto views = kiln::views_of(q, k, v, out, lse);
    return kiln::plan_flash_attention(views.q, views.k, views.v, views.out, views.lse,
                                      kiln::options_of(options));
  });
}

}  // extern "C"
