// Merging partial results, of kiln/c_serving.h.
#include "jit/api/c_call.h"
#include "kiln/c_serving.h"
#include "kiln/merge_states.h"

namespace kiln {
namespace {

static_assert(int(KILN_LSE_E) == int(LseBase::e));
static_assert(int(KILN_LSE_2) == int(LseBase::two));
static_assert(int(KILN_LSE_HEADS_TOKENS) == int(LseLayout::heads_tokens));
static_assert(int(KILN_LSE_TOKENS_HEADS) == int(LseLayout::tokens_heads));

constexpr const char* kMergeOp = "merge_states";

MergeStatesOptions merge_options_of(const kiln_merge_states_options* given) {
  MergeStatesOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_merge_states_options");
  options.base = enum_of({kMergeOp, "base"}, c.base, LseBase::two);
  options.layout = enum_of({kMergeOp, "layout"}, c.layout, LseLayout::tokens_heads);
  options.sinks = view_of(kMergeOp, "sinks", c.sinks);
  return options;
}

struct MergeViews {
  TensorView outs, lses, out, lse;
};
MergeViews merge_views_of(const kiln_tensor* outs, const kiln_tensor* lses, const kiln_tensor* out,
                          const kiln_tensor* lse) {
  return {view_of(kMergeOp, "outs", outs), view_of(kMergeOp, "lses", lses),
          view_of(kMergeOp, "out", out), view_of(kMergeOp, "lse", lse)};
}

}  // namespace
}  // namespace kiln

extern "C" {

kiln_status kiln_merge_states(const kiln_tensor* outs, const kiln_tensor* lses,
                              const kiln_tensor* out, const kiln_tensor* lse,
                              const kiln_merge_states_options* options, void* stream) {
  return kiln::run_c([&] {
    const auto views = kiln::merge_views_of(outs, lses, out, lse);
    kiln::merge_states(views.outs, views.lses, views.out, views.lse,
                       kiln::merge_options_of(options), stream);
  });
}

kiln_status kiln_plan_merge_states(const kiln_tensor* outs, const kiln_tensor* lses,
                                   const kiln_tensor* out, const kiln_tensor* lse,
                                   const kiln_merge_states_options* options, kiln_plan** plan) {
  return kiln::create("kiln_plan_merge_states", "plan", plan, [&] {
    const auto views = kiln::merge_views_of(outs, lses, out, lse);
    return kiln::plan_merge_states(views.outs, views.lses, views.out, views.lse,
                                   kiln::merge_options_of(options));
  });
}

}  // extern "C"
