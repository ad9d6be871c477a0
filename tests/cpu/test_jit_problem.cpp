// Every argument error of the operations, and what the checks bake into the traits.
#include <cmath>
#include <string>

#include "kiln/control.h"
#include "templates/attention/params.h"
#include "tests/cpu/problem_calls.h"
#include "tests/support/catch.h"

using namespace kiln;
using namespace kiln::testing;

TEST_CASE("attention: a sound call bakes its traits") {
  Attention call;
  call.options.causal = true;
  const AttentionTraits traits = call.check();
  CHECK(traits.mask == Mask::causal);
  CHECK(traits.head_dim == 64);
  CHECK(traits.head_dim_v == 32);
  CHECK(traits.aligned);
  CHECK(call.problem.len_q == 5);
  CHECK(call.problem.len_kv == 7);
}

TEST_CASE("attention: window and causal combine into one mask") {
  Attention call;
  call.options.window_right = 0;
  CHECK(call.check().mask == Mask::causal);
  call.options = {};
  call.options.causal = true;
  call.options.window_left = 3;
  call.options.window_right = 9;  // causal closes the right side
  CHECK(call.check().mask == Mask::window);
  const std::size_t first_word = sizeof(AttentionParams);
  std::uint64_t words[2];
  std::memcpy(words, call.problem.arguments().bytes().data() + first_word, sizeof(words));
  CHECK(words[0] == 3);
  CHECK(words[1] == 0);
}

TEST_CASE("attention: an odd stride or base chooses element-wise loads") {
  Attention call;
  call.q.strides[1] += 1;
  CHECK_FALSE(call.check().aligned);
  call = Attention();
  call.k.data = static_cast<char*>(kMemory) + 2;
  CHECK_FALSE(call.check().aligned);
  call = Attention();
  call.q = half({1, 1, 8, 64}), call.k = half({1, 7, 4, 64}), call.v = half({1, 7, 4, 32});
  call.out = result({1, 1, 8, 32});
  call.q.strides[0] = 3;  // of a dimension of one: never used
  CHECK(call.check().aligned);
}

TEST_CASE("attention: each bad argument is named in one sentence") {
  Attention call;
  SECTION("dtype") {
    call.q.dtype = DType::f32;
    CHECK(contains(call.error(), "q must be float16 or bfloat16, got float32"));
  }
  SECTION("mixed dtypes") {
    call.k.dtype = DType::f16;
    CHECK(contains(call.error(), "k must be bfloat16 like q, got float16"));
  }
  SECTION("host memory") {
    const std::string previous = set_device("cuda");
    call.q.device_type = DeviceType::cpu;
    CHECK(contains(call.error(), "q is in host memory; move it to a GPU first"));
    set_device(previous);
  }
  SECTION("host memory beside a device's") {
    call.k.device_type = DeviceType::cpu;
    CHECK(contains(call.error(), "k is in host memory but the first tensor is on cuda:0"));
  }
  SECTION("mixed devices") {
    call.v.device_ordinal = 1;
    CHECK(contains(call.error(), "v is on cuda:1 but the first tensor is on cuda:0"));
  }
  SECTION("rank") {
    call.q.rank = 3;
    CHECK(contains(call.error(), "q must have 4 dimensions"));
  }
  SECTION("head dim") {
    call.q = half({2, 5, 8, 60}), call.k = half({2, 7, 4, 60});
    CHECK(contains(call.error(), "multiple of 8 up to 256, or 512, got 60"));
  }
  SECTION("heads") {
    call.k = half({2, 7, 3, 64}), call.v = half({2, 7, 3, 32});
    CHECK(contains(call.error(), "a multiple of the heads of k, got 8 heads for 3"));
  }
  SECTION("k and v lengths") {
    call.v = half({2, 6, 4, 32});
    CHECK(contains(call.error(), "v must have the batch, length and heads of k"));
  }
  SECTION("last stride") {
    call.q.strides[3] = 2;
    CHECK(contains(call.error(), "q must be contiguous in its last dimension"));
  }
  SECTION("out shape") {
    call.out = result({2, 5, 8, 64});
    CHECK(contains(call.error(), "out must have shape [2, 5, 8, 32], got [2, 5, 8, 64]"));
  }
  SECTION("window") {
    call.options.window_left = -2;
    CHECK(contains(call.error(), "window must be (left, right)"));
  }
  SECTION("softcap") {
    call.options.softcap = -1;
    CHECK(contains(call.error(), "softcap must be"));
  }
  SECTION("scale") {
    call.options.scale = std::nanf("");
    CHECK(contains(call.error(), "scale must be a finite number"));
  }
  SECTION("lse") {
    call.lse = result({2, 8, 5}, DType::bf16, 1);
    CHECK(contains(call.error(), "lse must be float32"));
  }
  SECTION("sinks") {
    call.options.sinks = half({4}, DType::f32);
    CHECK(contains(call.error(), "sinks must have shape [8], got [4]"));
  }
  SECTION("slopes") {
    call.options.alibi_slopes = half({8}, DType::bf16);
    CHECK(contains(call.error(), "alibi_slopes must be float32"));
  }
}

TEST_CASE("attention: memory must be there, hold whole elements and be written once") {
  Attention call;
  void* const odd = static_cast<char*>(kMemory) + 1;
  SECTION("null") {
    call.v.data = nullptr;
    CHECK(contains(call.error(), "v has no memory: its data is null and its shape [2, 7, 4, 32]"));
    call.v.shape[1] = call.k.shape[1] = 0;
    call.k.data = nullptr;
    CHECK(call.error().empty());
  }
  SECTION("odd base") {
    call.k.data = odd;
    CHECK(contains(call.error(), "k must lie at a multiple of 2 bytes"));
  }
  SECTION("lse") {
    call.lse = result({2, 8, 5}, DType::f32, 1);
    call.lse.data = static_cast<char*>(call.lse.data) + 2;
    CHECK(contains(call.error(), "lse must lie at a multiple of 4 bytes"));
    call.lse.data = static_cast<char*>(call.lse.data) - 2;
    call.lse.strides[0] = 0;
    CHECK(contains(call.error(), "lse is written"));
  }
  SECTION("sinks and slopes") {
    call.options.sinks = half({8}, DType::f32);
    call.options.sinks.data = odd;
    CHECK(contains(call.error(), "sinks must lie at"));
    call.options.sinks = {};
    call.options.alibi_slopes = half({8}, DType::f32);
    call.options.alibi_slopes.data = nullptr;
    CHECK(contains(call.error(), "alibi_slopes has no memory"));
  }
  SECTION("a stride of zero") {
    call.q.strides[0] = call.k.strides[2] = 0;  // inputs may repeat
    CHECK(call.error().empty());
    call.out.strides[1] = 0;
    CHECK(contains(call.error(), "out is written, so no two of its elements may share memory"));
  }
}

TEST_CASE("attention: empty lengths are sound") {
  Attention call;
  call.k = half({2, 0, 4, 64}), call.v = half({2, 0, 4, 32});
  call.check();
  CHECK_FALSE(call.problem.empty());  // rows of zeros must be written
  call = Attention();
  call.q = half({2, 0, 8, 64}), call.out = result({2, 0, 8, 32});
  call.check();
  CHECK(call.problem.empty());
}

TEST_CASE("gemm: layouts are read from strides, trans_b equals a transposed view") {
  Gemm call;
  CHECK(call.check().major_b == Major::mn);  // NN
  call.b = half({8, 16});
  call.options.trans_b = true;
  const GemmTraits by_flag = call.check();
  CHECK(by_flag.major_b == Major::k);
  call.options.trans_b = false;
  std::swap(call.b.shape[0], call.b.shape[1]);
  std::swap(call.b.strides[0], call.b.strides[1]);
  CHECK(call.check() == by_flag);
}

TEST_CASE("gemm: alignment is a property of bases, leading dimensions and batches") {
  Gemm call;
  CHECK(call.check().loads == Access::vectors);
  call.a.strides[0] = 17;
  CHECK(call.check().loads == Access::elements);
  call = Gemm();
  call.out.strides[0] = 9;
  CHECK(call.check().stores == Access::elements);
}

TEST_CASE("gemm: each bad argument is named in one sentence") {
  Gemm call;
  SECTION("inner sizes") {
    call.b = half({15, 8});
    CHECK(contains(call.error(), "b must have 16 rows, the columns of a"));
  }
  SECTION("float32 without precision") {
    call.a.dtype = call.b.dtype = DType::f32;
    CHECK(contains(call.error(), "precision=\"tf32\""));
  }
  SECTION("float16 accumulation of bfloat16") {
    call.options.accumulator = Accumulator::f16;
    CHECK(contains(call.error(), "float16 needs float16 inputs"));
  }
  SECTION("no unit stride") {
    call.a.strides[1] = 2;
    CHECK(contains(call.error(), "a must have a stride of 1"));
  }
  SECTION("batches") {
    call.a = half({2, 6, 16}), call.b = half({3, 16, 8});
    CHECK(contains(call.error(),
                   "b must have 2 batch entries like a, or 1, got 3: a is [2, 6, 16], "
                   "b is [3, 16, 8]"));
  }
  SECTION("bias") {
    call.options.bias = half({6});
    CHECK(contains(call.error(), "bias must have shape [8], got [6]"));
  }
  SECTION("epilogue and activation") {
    call.options.epilogue = "acc";
    call.options.activation = Activation::relu;
    CHECK(contains(call.error(), "activation cannot be combined with epilogue"));
  }
  SECTION("several lines of epilogue") {
    call.options.epilogue = "acc\n#include <x>";
    CHECK(contains(call.error(), "epilogue must be one line"));
  }
  SECTION("null") {
    call.b.data = nullptr;
    CHECK(contains(call.error(), "b has no memory"));
  }
  SECTION("odd bases") {
    call.a.data = static_cast<char*>(kMemory) + 1;
    CHECK(contains(call.error(), "a must lie at a multiple of 2 bytes"));
    call.a.data = kMemory;
    call.options.bias = half({8}, DType::f32);
    call.options.bias.data = static_cast<char*>(kMemory) + 2;
    CHECK(contains(call.error(), "bias must lie at a multiple of 4 bytes"));
  }
  SECTION("rows written twice") {
    call.out.strides[0] = 0;
    CHECK(contains(call.error(),
                   "out is written, so no two of its elements may share memory, as "
                   "they do with shape [6, 8] and strides [0, 1]"));
    call.out = result({6, 8});
    call.options.residual = half({6, 8});
    call.options.residual.strides[0] = 0;  // is read
    CHECK(call.error().empty());
  }
  SECTION("activation name") { CHECK_THROWS_AS(parse_activation("swish"), std::invalid_argument); }
}

TEST_CASE("gemm: spans cover what the kernel may touch") {
  Gemm call;
  call.a.strides[0] = 32;  // rows of 16 in a pitch of 32
  call.check();
  const auto spans = call.problem.arguments().spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].bytes == (5 * 32 + 16) * 2);
  CHECK(spans[2].written);
}

TEST_CASE("attention: spans reach from the lowest to the highest byte, and no further") {
  Attention call;
  call.lse = result({2, 8, 5}, DType::f32, 1);
  // Rows from the last to the first; the address is that of row 0, the highest.
  call.k.strides[1] = -call.k.strides[1];
  call.v.strides[2] = 0;  // one head for all
  call.options.alibi_slopes = half({8}, DType::f32);
  call.check();
  const auto spans = call.problem.arguments().spans();
  REQUIRE(spans.size() == 6);
  const auto base = reinterpret_cast<std::uint64_t>(kMemory);
  CHECK(spans[1].address == base - 6 * 4 * 64 * 2);
  CHECK(spans[1].bytes == (7 * 4 * 64 + 6 * 4 * 64 + 4 * 64) * 2);
  CHECK(spans[2].bytes == ((7 + 6) * 4 * 32 + 32) * 2);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(spans[i].written == (i == 3 || i == 4));
    CHECK((i == 1 || spans[i].written || spans[i].address == base));
  }
  CHECK(spans[4].bytes == 2 * 8 * 5 * 4);
  CHECK(spans[5].bytes == 8 * 4);
}

TEST_CASE("attention: a tensor without elements has no memory") {
  Attention call;
  call.k = half({2, 0, 4, 64}), call.v = half({2, 0, 4, 32});
  call.check();
  const auto spans = call.problem.arguments().spans();
  CHECK(spans[1].bytes == 0);
  CHECK(spans[2].bytes == 0);
  CHECK(spans[3].bytes == 2 * 5 * 8 * 32 * 2);
}

TEST_CASE("attention: a variant's tensors are among the spans") {
  VariantDefinition definition;
  definition.name = "biased";
  definition.tensors = {{"bias", DType::f32, {"h", "q", "kv"}}};
  definition.logits = "logit + bias";
  const Variant variant(definition);
  const BoundVariant bound = variant.bind({}, {half({8, 1, 7}, DType::f32)});
  Attention call;
  call.options.variant = &bound;
  call.check();
  const auto spans = call.problem.arguments().spans();
  REQUIRE(spans.size() == 5);
  CHECK(spans[4].bytes == 8 * 7 * 4);
  CHECK_FALSE(spans[4].written);
}

TEST_CASE("gemm: patched pointers move their spans") {
  Gemm call;
  call.a.strides[0] = -16;
  call.check();
  CallArguments& arguments = call.problem.arguments();
  arguments.set_pointer(0, reinterpret_cast<void*>(0x20000));
  CHECK(arguments.spans()[0].address == 0x20000 - 5 * 16 * 2);
  CHECK(arguments.spans()[0].bytes == 6 * 16 * 2);
  CHECK(arguments.pointer(0) == 0x20000);
}
