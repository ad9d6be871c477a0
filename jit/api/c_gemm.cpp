// The matrix products of kiln/c.h.
#include "jit/api/c_call.h"
#include "kiln/gemm.h"

namespace kiln {
namespace {

#define KILN_SAME(c, cpp) static_assert(int(c) == int(cpp))
KILN_SAME(KILN_NO_ACTIVATION, Activation::none);
KILN_SAME(KILN_RELU, Activation::relu);
KILN_SAME(KILN_GELU, Activation::gelu);
KILN_SAME(KILN_GELU_TANH, Activation::gelu_tanh);
KILN_SAME(KILN_SILU, Activation::silu);
KILN_SAME(KILN_SWIGLU, Activation::swiglu);
KILN_SAME(KILN_GEGLU, Activation::geglu);
KILN_SAME(KILN_GEGLU_TANH, Activation::geglu_tanh);
KILN_SAME(KILN_DEFAULT_GATE, Gate::none);
KILN_SAME(KILN_HALVES, Gate::halves);
KILN_SAME(KILN_INTERLEAVED, Gate::interleaved);
KILN_SAME(KILN_ACCUMULATE_F32, Accumulator::f32);
KILN_SAME(KILN_ACCUMULATE_F16, Accumulator::f16);
KILN_SAME(KILN_PDL_OFF, Pdl::off);
KILN_SAME(KILN_PDL_ON, Pdl::on);
KILN_SAME(KILN_PDL_WEIGHTS, Pdl::weights);
#undef KILN_SAME

struct GemmViews {
  TensorView a, b, out;
};
GemmViews views_of(const kiln_tensor* a, const kiln_tensor* b, const kiln_tensor* out) {
  return {view_of("gemm", "a", a), view_of("gemm", "b", b), view_of("gemm", "out", out)};
}

}  // namespace

GemmOptions options_of(const kiln_gemm_options* given) {
  GemmOptions options;
  if (given == nullptr) return options;
  const char* const op = "gemm";
  const auto c = copy_of(given, "kiln_gemm_options");
  check_reserved("kiln_gemm_options", c.reserved);
  check_reserved("kiln_gemm_options", c.reserved_last);
  options.trans_a = c.trans_a != 0;
  options.trans_b = c.trans_b != 0;
  options.bias = view_of(op, "bias", c.bias);
  options.residual = view_of(op, "residual", c.residual);
  options.scale_a = view_of(op, "scale_a", c.scale_a);
  options.scale_b = view_of(op, "scale_b", c.scale_b);
  options.offsets = view_of(op, "offsets", c.offsets);
  options.counts = view_of(op, "counts", c.counts);
  options.expected_rows = c.expected_rows;
  options.activation = enum_of({op, "activation"}, c.activation, Activation::geglu_tanh);
  options.gate = enum_of({op, "gate"}, c.gate, Gate::interleaved);
  options.accumulator = enum_of({op, "accumulator"}, c.accumulator, Accumulator::f16);
  options.allow_tf32 = c.allow_tf32 != 0;
  options.fast = c.fast != 0;
  if (c.alpha != nullptr) options.alpha = *c.alpha;
  if (c.epilogue != nullptr) options.epilogue = c.epilogue;
  if (c.config != nullptr) {
    const kiln_gemm_tile& tile = *c.config;
    options.config = {tile.block_m, tile.block_n, tile.block_k,
                      tile.stages,  tile.cluster, tile.splits};
  }
  if (c.bound_epilogue != nullptr) options.bound_epilogue = &c.bound_epilogue->epilogue;
  options.workspace = {c.allocate, c.allocate_context};
  options.pdl = enum_of({op, "pdl"}, c.pdl, Pdl::weights);
  return options;
}

}  // namespace kiln

extern "C" {

kiln_status kiln_gemm(const kiln_tensor* a, const kiln_tensor* b, const kiln_tensor* out,
                      const kiln_gemm_options* options, void* stream) {
  return kiln::run_c([&] {
    const auto views = kiln::views_of(a, b, out);
    kiln::gemm(views.a, views.b, views.out, kiln::options_of(options), stream);
  });
}

kiln_status kiln_plan_gemm(const kiln_tensor* a, const kiln_tensor* b, const kiln_tensor* out,
                           const kiln_gemm_options* options, kiln_plan** plan) {
  return kiln::create("kiln_plan_gemm", "plan", plan, [&] {
    const auto views = kiln::views_of(a, b, out);
    return kiln::plan_gemm(views.a, views.b, views.out, kiln::options_of(options));
  });
}

}  // extern "C"
