// Views that no framework makes, as a C or C++ caller may: each entry reports them, and reads
// nothing beyond the view's five sizes.
#include <functional>
#include <limits>
#include <optional>

#include "jit/api/c_structs.h"
#include "kiln/kiln.h"
#include "tests/cpu/problem_calls.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

// Every tensor of every operation, and what a call with them reports.
struct Tensors {
  TensorView q = half({2, 8, 5, 64}), k = half({2, 8, 7, 64}), v = half({2, 8, 7, 64});
  TensorView out = result({2, 8, 5, 64}), lse = result({2, 8, 5}, DType::f32, 1);
  TensorView mask = half({2, 8, 5, 7}, DType::boolean), sinks = half({8}, DType::f32);
  TensorView slopes = half({2, 8}, DType::f32), bias = half({8, 7}, DType::f32);
  TensorView a = half({3, 6, 16}), b = half({3, 16, 8}), product = result({3, 6, 8});
  TensorView columns = half({8}), residual = half({3, 6, 8}), scale = half({6}, DType::f32);
  TensorView x = half({6, 16}), weight = half({16}), normed = result({6, 16});

  Status attention() const {
    VariantDefinition definition;
    definition.tensors = {{"bias", DType::f32, {"h", "kv"}}};
    definition.logits = "logit + bias";
    const BoundVariant bound = Variant(definition).bind({}, {bias});
    AttentionOptions options;
    options.layout = AttentionLayout::bhsd;
    options.attn_mask = mask, options.sinks = sinks, options.alibi_slopes = slopes;
    options.variant = &bound;
    std::optional<Plan> plan;
    const Status planned = try_plan_flash_attention(q, k, v, out, lse, options, plan);
    const Status status = try_flash_attention(q, k, v, out, lse, options);
    CHECK(status.message == planned.message);
    return status;
  }
  Status sdpa() const { return try_scaled_dot_product_attention(q, k, v, mask, out); }
  Status gemm() const {
    GemmOptions options;
    options.bias = columns, options.residual = residual, options.scale_a = scale;
    return try_gemm(a, b, product, options);
  }
  Status norm() const {
    NormOptions options;
    options.residual = x, options.residual_out = result({6, 16}, DType::bf16, 1);
    return try_rms_norm(x, weight, normed, options);
  }
};

using Call = Status (Tensors::*)() const;
using Member = TensorView Tensors::*;
constexpr std::pair<Call, Member> kAll[] = {
    {&Tensors::attention, &Tensors::q},     {&Tensors::attention, &Tensors::k},
    {&Tensors::attention, &Tensors::v},     {&Tensors::attention, &Tensors::out},
    {&Tensors::attention, &Tensors::lse},   {&Tensors::attention, &Tensors::mask},
    {&Tensors::attention, &Tensors::sinks}, {&Tensors::attention, &Tensors::slopes},
    {&Tensors::attention, &Tensors::bias},  {&Tensors::sdpa, &Tensors::q},
    {&Tensors::sdpa, &Tensors::k},          {&Tensors::sdpa, &Tensors::v},
    {&Tensors::sdpa, &Tensors::mask},       {&Tensors::sdpa, &Tensors::out},
    {&Tensors::gemm, &Tensors::a},          {&Tensors::gemm, &Tensors::b},
    {&Tensors::gemm, &Tensors::product},    {&Tensors::gemm, &Tensors::columns},
    {&Tensors::gemm, &Tensors::residual},   {&Tensors::gemm, &Tensors::scale},
    {&Tensors::norm, &Tensors::x},          {&Tensors::norm, &Tensors::weight},
    {&Tensors::norm, &Tensors::normed}};

}  // namespace

TEST_CASE("a rank that no view can have is reported by every call") {
  for (const auto& [call, member] : kAll) {
    for (const int rank : {-1, 6, 9, 1000000, std::numeric_limits<int>::min()}) {
      Tensors tensors;
      (tensors.*member).rank = rank;
      const Status status = (tensors.*call)();
      INFO(status.message);
      CHECK(status.code == StatusCode::invalid_argument);
      CHECK(mentions(status.message, "must have a rank of 0 to 5, got " + std::to_string(rank)));
    }
  }
}

TEST_CASE("a negative size is reported by every call") {
  for (const auto& [call, member] : kAll) {
    for (int i = 0; i < (Tensors().*member).rank; ++i) {
      Tensors tensors;
      (tensors.*member).shape[i] = -5;
      const Status status = (tensors.*call)();
      INFO(status.message);
      CHECK(status.code == StatusCode::invalid_argument);
      CHECK(mentions(status.message, "must have sizes of 0 or more, got shape ["));
    }
  }
}

TEST_CASE("sizes whose product is beyond 64 bits are too many rows") {
  TensorView x = half({4, 8});
  x.rank = 5;
  std::fill_n(x.shape, 4, std::int64_t{1} << 32);
  x.shape[4] = 8;
  const Status status = try_rms_norm(x, {}, x);
  CHECK(mentions(status.message, "must have at most 65536 columns and 2^31 - 1 rows"));
}

TEST_CASE("functions that tell a result's shape report such views as well") {
  Tensors tensors;
  tensors.q.rank = tensors.a.rank = tensors.x.rank = 1000000;
  const std::string expected = "must have a rank of 0 to 5, got 1000000";
  const std::function<void()> calls[] = {
      [&] { flash_attention_output(tensors.q, tensors.v); },
      [&] { flash_attention_lse_output(tensors.q, AttentionLayout::bshd); },
      [&] { scaled_dot_product_attention_output(tensors.q, tensors.k, tensors.v); },
      [&] { gemm_output(tensors.a, tensors.b, DType::bf16); },
      [&] { norm_output(tensors.x, DType::none); }};
  for (const auto& call : calls) {
    CHECK(mentions(message_of<std::invalid_argument>(call), expected));
  }
}

TEST_CASE("a layout that is none is reported") {
  AttentionOptions options;
  options.layout = static_cast<AttentionLayout>(9);
  const Attention call;
  const Status status = try_flash_attention(call.q, call.k, call.v, call.out, {}, options);
  CHECK(status.code == StatusCode::invalid_argument);
  CHECK(mentions(status.message,
                 "layout must be AttentionLayout::bshd (0) or AttentionLayout::bhsd (1), got 9"));
}

TEST_CASE("options of gemm that are no value of their type are reported") {
  const TensorView a = contiguous_view(kMemory, DType::f16, 0, 8, 8);
  const TensorView out = contiguous_view(static_cast<char*>(kMemory) + 4096, DType::f16, 0, 8, 8);
  const auto message = [&](const GemmOptions& options) {
    const Status status = try_gemm(a, a, out, options);
    CHECK(status.code == StatusCode::invalid_argument);
    return status.message;
  };
  CHECK(message({.activation = static_cast<Activation>(99)}) ==
        "gemm: activation must be a value of kiln::Activation, got 99");
  CHECK(message({.gate = static_cast<Gate>(9)}) ==
        "gemm: gate must be a value of kiln::Gate, got 9");
  CHECK(message({.accumulator = static_cast<Accumulator>(9)}) ==
        "gemm: accumulator must be a value of kiln::Accumulator, got 9");
  CHECK(message({.pdl = static_cast<Pdl>(9)}) == "gemm: pdl must be a value of kiln::Pdl, got 9");
}

TEST_CASE("options of other operations that are no value of their type are reported") {
  const auto refused = [](const Status& status, std::string_view text) {
    CHECK(status.code == StatusCode::invalid_argument);
    CHECK(status.message == text);
  };
  const TensorView x = contiguous_view(kMemory, DType::f16, 0, 8, 8);
  const TensorView outs = contiguous_view(kMemory, DType::f16, 0, 2, 8, 4, 8);
  QuantizeOptions quantizing;
  quantizing.activation = static_cast<Activation>(77);
  refused(try_quantize(x, x, x, quantizing),
          "quantize: activation must be a value of kiln::Activation, got 77");
  MergeStatesOptions merging;
  merging.base = static_cast<LseBase>(7);
  refused(try_merge_states(outs, outs, outs, {}, merging),
          "merge_states: base must be a value of kiln::LseBase, got 7");
  merging.base = LseBase::e;
  merging.layout = static_cast<LseLayout>(7);
  refused(try_merge_states(outs, outs, outs, {}, merging),
          "merge_states: layout must be a value of kiln::LseLayout, got 7");
  MoeRouteOptions routing;
  routing.scoring = static_cast<MoeScoring>(8);
  refused(try_moe_route(x, x, x, routing),
          "moe_route: scoring must be a value of kiln::MoeScoring, got 8");
}

TEST_CASE("a view may have no dimensions") {
  const TensorView view = contiguous_view(kMemory, DType::f32, 0);
  CHECK(view.rank == 0);
  CHECK(view.given());
}

TEST_CASE("dtypes of C are those that its header lists") {
  const std::int64_t shape[] = {2};
  kiln_tensor tensor = kiln_contiguous(kMemory, KILN_F8_E8M0, KILN_CUDA, 0, 1, shape);
  CHECK(view_of("quantize", "scale", &tensor).dtype == DType::f8_e8m0);
  for (const std::int32_t dtype : {12, 14, -1}) {
    tensor.dtype = dtype;
    CHECK(message_of<std::invalid_argument>([&] { view_of("quantize", "scale", &tensor); }) ==
          "quantize: scale.dtype must be one of the values that kiln/c.h lists, 1 to 11 and 13, "
          "got " +
              std::to_string(dtype));
  }
}

TEST_CASE("structs of C with such a view are reported when they are read") {
  const std::int64_t shape[] = {2, -4};
  const kiln_tensor negative = kiln_contiguous(kMemory, KILN_BF16, KILN_CUDA, 0, 2, shape);
  CHECK(message_of<std::invalid_argument>([&] { view_of("gemm", "a", &negative); }) ==
        "gemm: a must have sizes of 0 or more, got shape [2, -4]");
}
