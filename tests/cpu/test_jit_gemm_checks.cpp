// The checks of gemm that concern 8-bit floats and scales.
#include <cstring>
#include <string>

#include "templates/gemm/params.h"
#include "tests/cpu/problem_calls.h"
#include "tests/support/catch.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

// 8-bit floats: a [m, k] and w.t() of w [n, k].
Gemm f8_gemm(std::int64_t m = 6, std::int64_t n = 8, std::int64_t k = 32) {
  Gemm call;
  call.a = half({m, k}, DType::f8_e4m3);
  call.b = half({n, k}, DType::f8_e4m3);
  call.out = result({m, n});
  std::swap(call.b.shape[0], call.b.shape[1]);
  std::swap(call.b.strides[0], call.b.strides[1]);
  return call;
}

}  // namespace

TEST_CASE("gemm: 8-bit floats bake both dtypes and the precision") {
  Gemm call = f8_gemm();
  GemmTraits traits = call.check();
  CHECK(traits.input == DType::f8_e4m3);
  CHECK(traits.input_b == DType::none);
  CHECK(traits.dtype_b() == DType::f8_e4m3);
  CHECK(traits.output == DType::bf16);
  CHECK_FALSE(traits.fast);
  call.b.dtype = DType::f8_e5m2;
  call.options.fast = true;
  traits = call.check();
  CHECK(traits.dtype_b() == DType::f8_e5m2);
  CHECK(traits.fast);
  call.out = result({6, 8}, DType::f32);
  CHECK(call.check().output == DType::f32);
  call = f8_gemm(1, 1, 5);  // strides of single rows are never used
  CHECK(call.error().empty());
  CHECK(call.problem.traits.loads == Access::boxes);
}

TEST_CASE("gemm: what 8-bit floats need is named in one sentence") {
  Gemm call = f8_gemm();
  SECTION("dtypes") {
    call.b.dtype = DType::bf16;
    CHECK(contains(call.error(), "b must be float8_e4m3fn or float8_e5m2, as a is float8_e4m3fn"));
    std::swap(call.a.dtype, call.b.dtype);
    CHECK(contains(call.error(), "b must be bfloat16 like a, got float8_e4m3fn"));
    call.a.dtype = DType::u8;
    CHECK(contains(call.error(), "a must be float16, bfloat16, float32, float8_e4m3fn or"));
  }
  SECTION("layouts") {
    call.b = half({32, 16}, DType::f8_e4m3), call.out = result({6, 16});
    CHECK(contains(call.error(),
                   "b must be contiguous along K, as it is float8_e4m3fn, got strides "
                   "[16, 1]; pass w.t() of a contiguous [n, k] weight"));
    call = f8_gemm();
    call.a.strides[0] = 1, call.a.strides[1] = 16;
    CHECK(contains(call.error(), "a must be contiguous along K"));
    CHECK(contains(call.error(), "call .contiguous() on the [m, k] tensor"));
  }
  SECTION("tensor maps") {
    call = f8_gemm(6, 8, 40);
    CHECK(contains(call.error(), "a must have strides beside that of K that are multiples of 16"));
    call = f8_gemm();
    call.b.data = static_cast<char*>(kMemory) + 8;
    CHECK(contains(call.error(), "b must lie at a multiple of 16 bytes"));
  }
  SECTION("nothing to multiply") {
    call = f8_gemm(6, 8, 0);
    CHECK(contains(call.error(), "a must have a K of 1 or more, as it is float8_e4m3fn"));
  }
  SECTION("other roles") {
    call.out.dtype = DType::u8;
    CHECK(contains(call.error(),
                   "out must be float16, bfloat16, float32, float8_e4m3fn, float8_e5m2 or int8, "
                   "got uint8"));
    call = f8_gemm();
    call.options.bias = half({8}, DType::f8_e5m2);
    CHECK(contains(call.error(), "bias must be float16, bfloat16 or float32, got float8_e5m2"));
    call = f8_gemm();
    call.options.residual = half({6, 8}, DType::f8_e5m2);
    CHECK(contains(call.error(), "residual must be float16, bfloat16 or float32"));
    Attention attention;
    attention.q.dtype = DType::f8_e4m3;
    CHECK(contains(attention.error(), "q must be float16 or bfloat16, got float8_e4m3fn"));
  }
  SECTION("options") {
    call.options.accumulator = Accumulator::f16;
    CHECK(contains(call.error(), "accumulator float16 needs float16 inputs, got float8_e4m3fn"));
    Gemm other;
    other.options.fast = true;
    CHECK(contains(other.error(), "precision \"fast\" is for float8 inputs, got bfloat16"));
  }
}

TEST_CASE("gemm: the shape of a scale is its granularity") {
  Gemm call;
  const auto scales = [&](std::initializer_list<std::int64_t> a,
                          std::initializer_list<std::int64_t> b) {
    call.options.scale_a = half(a, DType::f32), call.options.scale_b = half(b, DType::f32);
    const GemmTraits traits = call.check();
    return std::pair{traits.scale_a, traits.scale_b};
  };
  CHECK(call.check().scale_a == Scale::none);
  CHECK(scales({}, {1}) == std::pair{Scale::tensor, Scale::tensor});
  CHECK(scales({6}, {8}) == std::pair{Scale::vector, Scale::vector});
  CHECK(scales({6, 1}, {1, 8}) == std::pair{Scale::vector, Scale::vector});
  CHECK(call.problem.arguments().pointers() == 5);
  call.a = half({1, 16}), call.out = result({1, 8});  // one row: both readings are the same
  CHECK(scales({1}, {8}).first == Scale::tensor);
  CHECK(scales({1, 1}, {8}).first == Scale::vector);
  call.a = half({3, 6, 16}), call.b = half({3, 16, 8}), call.out = result({3, 6, 8});
  CHECK(scales({3, 6, 1}, {3, 1, 8}) == std::pair{Scale::vector, Scale::vector});
  CHECK(scales({6, 1}, {8}) == std::pair{Scale::vector, Scale::vector});
  CHECK(scales({1}, {}) == std::pair{Scale::tensor, Scale::tensor});
}

TEST_CASE("gemm: scales of a batch may have one dimension less or a batch of 1") {
  Gemm call;
  call.a = half({3, 6, 16}), call.b = half({3, 16, 8}), call.out = result({3, 6, 8});
  const auto strides = [&](const TensorView& a, const TensorView& b) {
    call.options.scale_a = a, call.options.scale_b = b;
    call.check();
    GemmParams params;
    std::memcpy(&params, call.problem.arguments().bytes().data(), sizeof params);
    return std::pair{params.scale_a_batch, params.scale_b_batch};
  };
  const auto f32 = [](std::initializer_list<std::int64_t> shape) {
    return half(shape, DType::f32);
  };
  CHECK(strides(f32({3, 6}), f32({3, 8})) == std::pair{6ll, 8ll});
  CHECK(strides(f32({3, 6, 1}), f32({3, 1, 8})) == std::pair{6ll, 8ll});
  CHECK(strides(f32({1, 6, 1}), f32({1, 1, 8})) == std::pair{0ll, 0ll});
  CHECK(strides(f32({6, 1}), f32({1, 8})) == std::pair{0ll, 0ll});
}

TEST_CASE("gemm: other scales are refused in one sentence") {
  Gemm call;
  TensorView& a = call.options.scale_a;
  TensorView& b = call.options.scale_b;
  SECTION("shapes") {
    a = half({8}, DType::f32);
    CHECK(contains(call.error(),
                   "scale_a must have shape [] or [1] (one for all), or [6] or [6, 1] "
                   "(one for each row of the output), got [8]"));
    a = half({1, 6}, DType::f32);
    CHECK(contains(call.error(), "got [1, 6]"));
    a = half({1, 1}, DType::f32);
    CHECK(contains(call.error(), "got [1, 1]"));
    a = {};
    b = half({8, 1}, DType::f32);
    CHECK(contains(call.error(),
                   "scale_b must have shape [] or [1] (one for all), or [8] or [1, 8] "
                   "(one for each column of the output), got [8, 1]"));
    b = half({1, 1, 8}, DType::f32);
    CHECK(contains(call.error(), "got [1, 1, 8]"));
  }
  SECTION("shapes with a batch") {
    call.a = half({3, 6, 16}), call.b = half({3, 16, 8}), call.out = result({3, 6, 8});
    a = half({2, 6, 1}, DType::f32);
    CHECK(contains(call.error(), "[6], [6, 1], [3, 6] or [3, 6, 1] (one for each row"));
  }
  SECTION("dtype, memory and strides") {
    a = half({6});
    CHECK(contains(call.error(), "scale_a must be float32, got bfloat16"));
    a = half({6}, DType::f32);
    a.data = static_cast<char*>(kMemory) + 2;
    CHECK(contains(call.error(), "scale_a must lie at a multiple of 4 bytes"));
    a = half({6}, DType::f32);
    a.strides[0] = 2;
    CHECK(contains(call.error(), "scale_a must have a stride of 1 between its entries, got 2"));
    a = half({}, DType::f32);
    a.data = nullptr;
    CHECK(contains(call.error(), "scale_a has no memory"));
  }
  SECTION("device") {
    b = half({8}, DType::f32);
    b.device_ordinal = 1;
    CHECK(contains(call.error(), "scale_b is on cuda:1"));
  }
}

namespace {

// A [m, k] scale's shape and strides, as the transposed view of a contiguous one.
TensorView transposed(TensorView view) {
  std::swap(view.shape[view.rank - 2], view.shape[view.rank - 1]);
  std::swap(view.strides[view.rank - 2], view.strides[view.rank - 1]);
  return view;
}

}  // namespace

TEST_CASE("gemm: scales of blocks of 8-bit floats are known by their shapes") {
  Gemm call = f8_gemm(6, 200, 304);  // 3 groups of K, 2 blocks of columns
  TensorView& a = call.options.scale_a;
  TensorView& b = call.options.scale_b;
  const auto granularity = [&] {
    const GemmTraits traits = call.check();
    return std::pair{traits.scale_a, traits.scale_b};
  };
  const auto params = [&] {
    GemmParams p;
    std::memcpy(&p, call.problem.arguments().bytes().data(), sizeof p);
    return p;
  };
  a = half({6, 3}, DType::f32), b = transposed(half({2, 3}, DType::f32));
  CHECK(granularity() == std::pair{Scale::groups, Scale::blocks});
  CHECK((params().scale_a_row == 3 && params().scale_a_group == 1));
  CHECK((params().scale_b_column == 3 && params().scale_b_group == 1));
  a = transposed(half({3, 6}, DType::f32)), b = half({3, 200}, DType::f32);
  CHECK(granularity() == std::pair{Scale::groups, Scale::groups});
  CHECK((params().scale_a_row == 1 && params().scale_a_group == 6));
  CHECK((params().scale_b_column == 1 && params().scale_b_group == 200));
  SECTION("b as it is stored, and its scale likewise") {
    call.options.trans_b = true;
    call.b = transposed(call.b), b = half({2, 3}, DType::f32);
    CHECK(granularity() == std::pair{Scale::groups, Scale::blocks});
    CHECK((params().scale_b_column == 3 && params().scale_b_group == 1));
    b = half({3, 2}, DType::f32);
    CHECK(contains(call.error(),
                   "scale_b must have shape [200, 3] (one for each column of b and 128 of K) or "
                   "[2, 3] (one for each 128 x 128 of b), as scale_a has one for each 128 of K, "
                   "got [3, 2]; it is laid out as b is passed, so w_scale.t() goes with w.t()"));
  }
  SECTION("one block of columns, and as many groups as columns") {
    call = f8_gemm(6, 3, 304);
    call.options.trans_b = true;
    call.b = transposed(call.b), call.options.scale_b = half({1, 3}, DType::f32);
    CHECK(call.check().scale_b == Scale::vector);
    call.options.scale_a = half({6, 3}, DType::f32);
    CHECK(granularity() == std::pair{Scale::groups, Scale::blocks});
  }
  SECTION("one group: vectors mean the same") {
    call = f8_gemm(6, 200, 128);
    call.options.scale_a = half({6, 1}, DType::f32);
    call.options.scale_b = half({1, 200}, DType::f32);
    CHECK(granularity() == std::pair{Scale::vector, Scale::vector});
    call.options.scale_b = half({1, 2}, DType::f32);
    CHECK(granularity() == std::pair{Scale::groups, Scale::blocks});
    call.options.scale_b = half({1, 200}, DType::f32);
    call.options.scale_a.strides[0] = 4;  // not as a vector may lie
    CHECK(granularity() == std::pair{Scale::groups, Scale::groups});
  }
  SECTION("batches") {
    call.a = half({4, 6, 304}, DType::f8_e4m3), call.out = result({4, 6, 200});
    a = half({4, 6, 3}, DType::f32), b = half({3, 2}, DType::f32);
    CHECK(granularity() == std::pair{Scale::groups, Scale::blocks});
    CHECK((params().scale_a_batch == 18 && params().scale_b_batch == 0));
    a = half({2, 6, 3}, DType::f32);
    CHECK(contains(call.error(), "scale_a must have shape [6, 3] (one for each row of a and 128"));
  }
}

TEST_CASE("gemm: both scales of blocks may be bytes") {
  Gemm call = f8_gemm(6, 200, 304);
  TensorView& a = call.options.scale_a;
  TensorView& b = call.options.scale_b;
  a = half({6, 3}, DType::f32), b = half({3, 2}, DType::f32);
  CHECK(call.check().scale_dtype == DType::none);
  b.dtype = DType::f8_e8m0;
  CHECK(contains(call.error(), "scale_b must be float32 like scale_a, got float8_e8m0fnu"));
  std::swap(a.dtype, b.dtype);
  CHECK(contains(call.error(), "scale_b must be float8_e8m0fnu like scale_a, got float32"));
  b.dtype = DType::f8_e8m0;
  CHECK(call.check().scale_dtype == DType::f8_e8m0);
  a = {};
  CHECK(contains(call.error(), "as scale_b has one for each 128 of K, got none"));
  b = half({200}, DType::f8_e8m0);
  CHECK(contains(call.error(),
                 "scale_b must be float32, as only scales of blocks, one for each 128 of K, may be "
                 "float8_e8m0fnu, got shape [200]"));
  call = f8_gemm(6, 200, 128);  // where vectors of floats are none of blocks
  call.options.scale_a = half({6, 1}, DType::f8_e8m0);
  call.options.scale_b = half({1, 200}, DType::f8_e8m0);
  CHECK(call.check().scale_b == Scale::groups);
}

TEST_CASE("gemm: scales of blocks are of both operands, and of 8-bit floats alone") {
  Gemm call = f8_gemm(6, 200, 304);
  TensorView& a = call.options.scale_a;
  TensorView& b = call.options.scale_b;
  a = half({6, 3}, DType::f32);
  CHECK(contains(call.error(), "as scale_a has one for each 128 of K, got none"));
  b = half({200}, DType::f32);
  CHECK(contains(call.error(), "as scale_a has one for each 128 of K, got [200]"));
  a = {}, b = half({3, 2}, DType::f32);
  CHECK(contains(call.error(),
                 "scale_a must have shape [6, 3] (one for each row of a and 128 of K), as scale_b "
                 "has one for each 128 of K, got none"));
  a = half({6, 3}, DType::f32);
  CHECK(call.error().empty());
  call.options.fast = true;
  CHECK(contains(call.error(), "precision \"fast\" cannot be combined with scales of blocks"));
  call.options.fast = false, call.options.activation = Activation::swiglu;
  call.out = result({6, 100});
  CHECK(contains(call.error(), "activation cannot be gated where the scales are of blocks"));
  Gemm other;
  other.a = half({6, 304}), other.b = half({304, 8}), other.out = result({6, 8});
  other.options.scale_a = half({6, 3}, DType::f32),
  other.options.scale_b = half({3, 1}, DType::f32);
  CHECK(contains(other.error(), "scale_a must have shape [] or [1] (one for all), or [6]"));
}

TEST_CASE("gemm: scales of columns are read by vectors where they can be") {
  Gemm call;
  call.options.scale_a = half({6}, DType::f32), call.options.scale_b = half({8}, DType::f32);
  CHECK(call.check().stores == Access::vectors);
  call.options.scale_a.data = static_cast<char*>(kMemory) + 4;
  CHECK(call.check().stores == Access::vectors);
  call.options.scale_b.data = static_cast<char*>(kMemory) + 4;
  CHECK(call.check().stores == Access::boxes);
}

namespace {

// a [6, 32] times w.t() of w [n, 32], gated.
Gemm gated_gemm(std::int64_t n) {
  Gemm call;
  call.a = half({6, 32});
  call.b = half({n, 32});
  std::swap(call.b.shape[0], call.b.shape[1]);
  std::swap(call.b.strides[0], call.b.strides[1]);
  call.out = result({6, n / 2});
  call.options.activation = Activation::swiglu;
  return call;
}

}  // namespace

TEST_CASE("gemm: a gated activation halves the output's columns") {
  Gemm call = gated_gemm(32);
  GemmTraits traits = call.check();
  CHECK(traits.activation == Activation::swiglu);
  CHECK(traits.gate == Gate::halves);
  CHECK(traits.loads == Access::vectors);
  CHECK(traits.stores == Access::vectors);
  CHECK(call.problem.n == 32);
  CHECK(gemm_output(call.a, call.b, DType::f16, call.options).shape[1] == 16);
  call.options.gate = Gate::interleaved;
  CHECK(call.check().gate == Gate::interleaved);
  call.options = {};
  call.out = result({6, 32});
  CHECK(call.check().gate == Gate::none);
}

TEST_CASE("gemm: halves that are contiguous along N are read as matrices of their own") {
  Gemm call = gated_gemm(32);
  call.b = half({32, 32});
  CHECK(call.check().loads == Access::vectors);
  call.b = half({32, 24}), call.out = result({6, 12});  // 24 bytes from half to half
  CHECK(call.check().loads == Access::elements);
  call.options.gate = Gate::interleaved;
  CHECK(call.check().loads == Access::vectors);
}

TEST_CASE("gemm: what gated activations need is named in one sentence") {
  Gemm call = gated_gemm(32);
  SECTION("pairs of columns") {
    call = gated_gemm(31);
    CHECK(contains(call.error(), "b must have an even number of columns"));
  }
  SECTION("the output's shape") {
    call.out = result({6, 32});
    CHECK(contains(call.error(), "out must have shape [6, 16], got [6, 32]"));
  }
  SECTION("a gate alone") {
    call.options.activation = Activation::silu;
    call.options.gate = Gate::interleaved;
    CHECK(contains(call.error(), "gate is for the activations swiglu, geglu and geglu_tanh"));
  }
  SECTION("an expression") {
    call.options.epilogue = "acc";
    CHECK(contains(call.error(), "activation cannot be gated with an epilogue"));
  }
  SECTION("names") {
    CHECK(parse_gate("interleaved") == Gate::interleaved);
    CHECK(parse_activation("geglu_tanh") == Activation::geglu_tanh);
    CHECK_THROWS_AS(parse_gate("thirds"), std::invalid_argument);
  }
}
