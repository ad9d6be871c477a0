// Results that overlap an input, another result or themselves: what is proven is refused, slices
// that interleave pass, and some inputs may be replaced.
#include <random>
#include <set>
#include <string>

#include "jit/attention/sdpa.h"
#include "jit/norm/problem.h"
#include "jit/op/checks.h"
#include "tests/cpu/problem_calls.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

char* const kBase = reinterpret_cast<char*>(0x100000);

TensorView at(const TensorView& tensor, std::int64_t bytes) {
  TensorView moved = tensor;
  moved.data = kBase + bytes;
  return moved;
}

// `tensor` as a part of rows that are `pitch` elements apart.
TensorView with_pitch(const TensorView& tensor, std::int64_t pitch) {
  TensorView wide = tensor;
  std::int64_t stride = pitch;
  for (int i = tensor.rank - 2; i >= 0; --i) {
    wide.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return wide;
}

// Addresses of the bytes of all elements, each as often as elements have it.
std::multiset<std::int64_t> bytes_of(const TensorView& tensor) {
  std::multiset<std::int64_t> bytes;
  std::int64_t count = 1;
  for (int i = 0; i < tensor.rank; ++i) count *= tensor.shape[i];
  for (std::int64_t element = 0; element < count; ++element) {
    std::int64_t offset = 0, rest = element;
    for (int i = tensor.rank - 1; i >= 0; --i) {
      offset += rest % tensor.shape[i] * tensor.strides[i];
      rest /= tensor.shape[i];
    }
    for (int byte = 0; byte < size_of(tensor.dtype); ++byte) {
      bytes.insert(static_cast<char*>(tensor.data) - kBase + offset * size_of(tensor.dtype) + byte);
    }
  }
  return bytes;
}

// The norms have no struct of their own in problem_calls.h.
struct Norm {
  TensorView x = half({6, 16}), weight, out = result({6, 16});
  NormOptions options;

  std::string error() {
    NormProblem problem(NormKind::rms);
    try {
      check_norm(x, weight, {}, out, options, problem);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("overlap: small tensors of any strides agree with their lists of bytes") {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<std::int64_t>(random() % n); };
  const auto tensor = [&] {
    const DType dtypes[] = {DType::bf16, DType::f32, DType::u8};
    TensorView view;
    view.dtype = dtypes[below(3)];
    view.rank = static_cast<int>(below(4));
    for (int i = 0; i < view.rank; ++i) {
      view.shape[i] = below(10) == 0 ? below(2) : 1 + below(4);
      view.strides[i] = below(13) - 3;
    }
    view.data = kBase + below(40) * size_of(view.dtype);
    return view;
  };
  int shared = 0, repeated = 0;
  for (int i = 0; i < 4000; ++i) {
    const TensorView a = tensor(), b = tensor();
    const auto bytes_a = bytes_of(a), bytes_b = bytes_of(b);
    const bool shares = std::any_of(bytes_a.begin(), bytes_a.end(),
                                    [&](std::int64_t byte) { return bytes_b.contains(byte); });
    const bool repeats = std::adjacent_find(bytes_a.begin(), bytes_a.end()) != bytes_a.end();
    INFO(shape_text(a) << strides_text(a) << name(a.dtype) << a.data << " and " << shape_text(b)
                       << strides_text(b) << name(b.dtype) << b.data);
    REQUIRE(shares_elements(a, b) == shares);
    REQUIRE(repeats_elements(a) == repeats);
    if (is_nested(a)) REQUIRE_FALSE(repeats);
    shared += shares, repeated += repeats;
  }
  CHECK(shared > 400);
  CHECK(repeated > 400);
}

TEST_CASE("attention: a result over an input is refused") {
  Attention call;
  call.k = at(call.k, 0);
  call.out = at(call.out, 0);
  CHECK(call.error() ==
        "flash_attention: out shares memory with k, which the call reads while it writes; pass a "
        "tensor with memory of its own");
  call.out = at(call.out, 2 * 7 * 4 * 64 * 2 - 16);
  CHECK(contains(call.error(), "out shares memory with k"));
  call.out = at(call.out, 2 * 7 * 4 * 64 * 2);  // right behind it
  CHECK(call.error().empty());
  call.lse = result({2, 8, 5}, DType::f32);
  call.lse.data = static_cast<char*>(call.out.data) + 64;
  CHECK(contains(call.error(), "out shares memory with lse, which the call writes too"));
}

TEST_CASE("attention: the result may replace queries, at the same place alone") {
  Attention call;
  call.v = half({2, 7, 4, 64});
  call.q = at(call.q, 0), call.out = at(result({2, 5, 8, 64}), 0);
  CHECK(call.error().empty());
  call.out = at(call.out, 8 * 64 * 2);
  CHECK(call.error() ==
        "flash_attention: out shares memory with q; it may be that very tensor, with the same "
        "shape, dtype and strides, or must have memory of its own");
}

TEST_CASE("attention: slices of one packed buffer that interleave pass") {
  Attention call;
  const std::int64_t pitch = 3 * 64;  // [batch, length, heads, 3, 64]
  call.q = at(with_pitch(half({2, 5, 8, 64}), pitch), 0);
  call.k = at(with_pitch(half({2, 5, 8, 64}), pitch), 64 * 2);
  call.v = call.k;
  call.out = at(with_pitch(half({2, 5, 8, 64}), pitch), 2 * 64 * 2);
  CHECK(call.error().empty());
  call.out = at(call.out, 2 * 64 * 2 - 2);  // by one element into k
  CHECK(contains(call.error(), "out shares memory with k"));
}

TEST_CASE("attention: masks, slopes, sinks and a variant's tensors are no place for a result") {
  VariantDefinition definition;
  definition.tensors = {{"bias", DType::f32, {"h", "kv"}}};
  definition.logits = "logit + bias";
  const BoundVariant bound = Variant(definition).bind({}, {at(half({8, 7}, DType::f32), 0)});
  Attention call;
  call.out = at(call.out, 64);
  SECTION("bias") { call.options.variant = &bound; }
  SECTION("attn_mask") {
    call.options.attn_mask = at(half({2, 1, 5, 7}, DType::boolean), 60);
    call.options.attn_mask.strides[0] = 0;
  }
  SECTION("sinks") { call.options.sinks = at(half({8}, DType::f32), 64); }
  SECTION("alibi_slopes") { call.options.alibi_slopes = at(half({2, 8}, DType::f32), 32); }
  CHECK(contains(call.error(), "out shares memory with "));
}

TEST_CASE("sdpa: a result over another slice's keys is refused") {
  TensorView q = half({2, 3, 4, 8, 64});
  std::swap(q.strides[0], q.strides[1]);
  const TensorView k = at(half({2, 3, 4, 9, 64}), 0);
  TensorView out = at(half({2, 3, 4, 8, 64}), 0);
  const auto error = [&] {
    return message_of<std::invalid_argument>([&] { check_sdpa(q, k, k, {}, out, {}); });
  };
  // Slice 1 of the result alone lies over slice 0 of the keys.
  out.data = kBase - 3 * 4 * 8 * 64 * 2;
  CHECK(contains(error(), "out shares memory with key"));
  out.data = kBase - 2 * 3 * 4 * 8 * 64 * 2;
  CHECK_NOTHROW(check_sdpa(q, k, k, {}, out, {}));
}

TEST_CASE("gemm: a result may replace the residual, and nothing else") {
  Gemm call;
  call.out = at(call.out, 0);
  call.options.residual = call.out;
  CHECK(call.error().empty());
  call.options.residual.strides[0] = 16;
  CHECK(contains(call.error(), "out shares memory with residual; it may be that very tensor"));
  call.options.residual = call.out;
  call.options.residual.dtype = DType::f16;
  CHECK(contains(call.error(), "out shares memory with residual"));
  for (std::size_t i = 0; i < 4; ++i) {
    Gemm other;
    other.out = at(other.out, 0);
    other.options.bias = half({8}), other.options.scale_a = half({6}, DType::f32);
    CHECK(other.error().empty());
    TensorView* const inputs[] = {&other.a, &other.b, &other.options.bias, &other.options.scale_a};
    inputs[i]->data = other.out.data;
    CHECK(contains(other.error(), "which the call reads while it writes"));
  }
}

TEST_CASE("gemm: columns of one buffer pass, and a result of elements at one place does not") {
  Gemm call;
  call.a = at(with_pitch(half({6, 16}), 24), 0);
  call.out = at(with_pitch(half({6, 8}), 24), 16 * 2);
  CHECK(call.error().empty());
  call.out = at(call.out, 16 * 2 - 2);
  CHECK(contains(call.error(), "out shares memory with a"));
  call.out = result({6, 8});
  call.out.strides[0] = 7;
  CHECK(contains(call.error(), "no two of its elements may share memory"));
  call.a = half({3, 6, 16}), call.b = half({3, 16, 8}), call.out = result({3, 6, 8});
  call.out.strides[0] = 8, call.out.strides[1] = 24;  // rows of batch entries take turns
  CHECK(call.error().empty());
}

TEST_CASE("norms: what is summed may be replaced, weights may not") {
  Norm call;
  call.out = call.x = at(call.x, 0);
  CHECK(call.error().empty());
  call.weight = at(half({16}), 32);
  CHECK(contains(call.error(), "out shares memory with weight, which the call reads"));
  call.weight = {};
  call.out = at(call.out, 32);
  CHECK(contains(call.error(), "out shares memory with x; it may be that very tensor"));
  call.out = result({6, 16});
  call.options.residual = half({6, 16});
  call.options.residual_out = call.out;
  CHECK(contains(call.error(), "out shares memory with residual_out, which the call writes too"));
}
