// Every field of kiln/c.h's options arrives where the C++ API has it. The operations are tested
// from C, in tests/cpp/c_api.c.
#include "jit/api/c_norm.h"
#include "jit/api/c_structs.h"
#include "kiln/c_serving.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

namespace kiln {
namespace {

using testing::mentions;
using testing::message_of;

char g_memory[8];

// Told apart by its address.
kiln_tensor tensor(int i) {
  const std::int64_t shape[] = {i + 2, 3};
  return kiln_contiguous(g_memory + i, KILN_F16, KILN_CUDA, 7, 2, shape);
}
void* allocate(void*, std::size_t) { return nullptr; }

template <class Struct>
Struct zeroed() {
  Struct c{};
  c.struct_size = sizeof c;
  return c;
}

}  // namespace

TEST_CASE("a C tensor becomes a view of the same memory") {
  const kiln_tensor given = tensor(1);
  const TensorView view = view_of("gemm", "a", &given);
  CHECK(view.data == g_memory + 1);
  CHECK(view.dtype == DType::f16);
  CHECK(view.device_type == DeviceType::cuda);
  CHECK(view.device_ordinal == 7);
  CHECK(view.rank == 2);
  CHECK((view.shape[0] == 3 && view.shape[1] == 3 && view.shape[2] == 0));
  CHECK((view.strides[0] == 3 && view.strides[1] == 1 && view.strides[2] == 0));
  CHECK_FALSE(view_of("gemm", "a", nullptr).given());
}

TEST_CASE("attention's options arrive from C") {
  const kiln_tensor sinks = tensor(1), slopes = tensor(2), mask = tensor(3);
  const std::int64_t window[] = {5, 6};
  const float scale = 0.25f;
  const kiln_bound_variant variant{Variant({.name = "v",
                                            .params = {},
                                            .tensors = {},
                                            .logits = "-logit",
                                            .mask = {},
                                            .file_text = {},
                                            .file_name = {}})
                                       .bind({}, {})};
  const kiln_attention_options c{sizeof c, 1,        KILN_BHSD, window,   &scale, &sinks, &slopes,
                                 &mask,    &variant, allocate,  g_memory, 30.0f,  1};
  const AttentionOptions options = options_of(&c);
  CHECK(options.causal);
  CHECK(options.layout == AttentionLayout::bhsd);
  CHECK((options.window_left == 5 && options.window_right == 6));
  CHECK(options.scale == 0.25f);
  CHECK(options.sinks.data == sinks.data);
  CHECK(options.alibi_slopes.data == slopes.data);
  CHECK(options.attn_mask.data == mask.data);
  CHECK(options.top_left);
  CHECK(options.variant == &variant.variant);
  CHECK((options.workspace.allocate == allocate && options.workspace.context == g_memory));
  CHECK(options.softcap == 30.0f);
}

TEST_CASE("SDPA's options arrive from C") {
  const float scale = 0.25f;
  const kiln_sdpa_options c{sizeof c, 1, 1, &scale, allocate, g_memory};
  const SdpaOptions options = options_of(&c);
  CHECK((options.is_causal && options.enable_gqa && options.scale == 0.25f));
  CHECK((options.workspace.allocate == allocate && options.workspace.context == g_memory));
  CHECK_FALSE(options_of((kiln_sdpa_options*)nullptr).scale);
}

TEST_CASE("the options of attention with lengths arrive from C") {
  const kiln_tensor queries = tensor(1), keys = tensor(2), used = tensor(3), pages = tensor(4);
  const kiln_tensor of_q = tensor(5), of_k = tensor(6), of_v = tensor(7), of_out = tensor(8);
  kiln_attention_options attention = zeroed<kiln_attention_options>();
  attention.causal = 1;
  const kiln_tensor starts = tensor(5), list = tensor(6), flags = tensor(7), words = tensor(9);
  kiln_sequence_options sequences{sizeof sequences, &starts, &list, &flags, &words,
                                  nullptr,          0,       0,     0,      &words};
  const kiln_cache_scales scales{sizeof scales, &of_q, &of_k, &of_v, &of_out};
  const kiln_varlen_options c{sizeof c, &queries, &keys,      &used,      &pages, 5,
                              6,        1,        &attention, &sequences, &scales};
  const VarlenOptions options = options_of(&c);
  CHECK(options.cu_seqlens_q.data == queries.data);
  CHECK(options.cu_seqlens_k.data == keys.data);
  CHECK(options.seqused_k.data == used.data);
  CHECK(options.block_table.data == pages.data);
  CHECK((options.max_seqlen_q == 5 && options.max_seqlen_k == 6 && options.num_splits == 1));
  CHECK(options.attention.causal);
  CHECK((options.kv_indptr.data == starts.data && options.kv_indices.data == list.data));
  CHECK((options.causal_each.data == flags.data && options.tree_mask.data == words.data));
  CHECK(options.plan.data == words.data);
  CHECK((options.context.world == 1 && options.context.rank == 0));
  CHECK((options.context.interleave == 1 && !options.context.seqused_k_total.given()));
  sequences.cp_seqused_k_total = &list;
  sequences.cp_world = 4, sequences.cp_rank = 2, sequences.cp_interleave = 16;
  CHECK(options.attention.q_scale.data == of_q.data);
  CHECK(options.attention.k_scale.data == of_k.data);
  CHECK(options.attention.v_scale.data == of_v.data);
  CHECK(options.out_scale.data == of_out.data);
  CHECK_FALSE(options_of((kiln_varlen_options*)nullptr).cu_seqlens_q.given());

  kiln_cache_options cache = zeroed<kiln_cache_options>();
  cache.cache_batch_idx = &queries, cache.cache_leftpad = &keys;
  cache.k_new = &used, cache.v_new = &pages, cache.rotary_cos = &starts, cache.rotary_sin = &list;
  const kiln_kvcache_options k{sizeof k, &used, &pages, 1, &attention, &sequences, &cache, &scales};
  const KvCacheOptions cached = options_of(&k);
  CHECK((cached.cache_seqlens.data == used.data && cached.block_table.data == pages.data));
  CHECK((cached.num_splits == 1 && cached.attention.causal));
  CHECK((cached.kv_indptr.data == starts.data && cached.causal_each.data == flags.data));
  CHECK((cached.tree_mask.data == words.data && cached.plan.data == words.data));
  CHECK((cached.context.world == 4 && cached.context.rank == 2));
  CHECK((cached.context.interleave == 16 && cached.context.seqused_k_total.data == list.data));
  CHECK((cached.cache_batch_idx.data == queries.data && cached.cache_leftpad.data == keys.data));
  CHECK((cached.k_new.data == used.data && cached.v_new.data == pages.data));
  CHECK((cached.rotary_cos.data == starts.data && cached.rotary_sin.data == list.data));
  CHECK(cached.rotary_interleaved);
  cache.rotary_halves = 1;
  CHECK_FALSE(options_of(&k).rotary_interleaved);
  cache.reserved = 1;
  CHECK(mentions(message_of<std::invalid_argument>([&] { options_of(&k); }),
                 "kiln_cache_options: reserved must be 0, got 1"));
  cache.reserved = 0;
  CHECK(cached.attention.q_scale.data == of_q.data);
  CHECK(cached.attention.k_scale.data == of_k.data);
  CHECK(cached.attention.v_scale.data == of_v.data);
  CHECK(cached.out_scale.data == of_out.data);
  const auto zeros = zeroed<kiln_kvcache_options>();
  CHECK_FALSE(options_of(&zeros).attention.causal);

  attention.layout = 9;
  CHECK(mentions(message_of<std::invalid_argument>([&] { options_of(&c); }),
                 "flash_attention_varlen: layout"));
  CHECK(mentions(message_of<std::invalid_argument>([&] { options_of(&k); }),
                 "flash_attention_with_kvcache: layout"));
}

TEST_CASE("GEMM's options arrive from C") {
  const kiln_tensor bias = tensor(1), residual = tensor(2), scale_a = tensor(3),
                    scale_b = tensor(4), offsets = tensor(5), counts = tensor(6);
  const kiln_bound_epilogue bound{Epilogue({"", {}, {}, "acc"}).bind({}, {})};
  const float alpha = 0.5f;
  const kiln_gemm_tile tile{1, 2, 3, 4, 5, 6};
  kiln_gemm_options c{sizeof c,
                      1,
                      0,
                      &bias,
                      &residual,
                      &scale_a,
                      &scale_b,
                      &alpha,
                      "acc",
                      &tile,
                      KILN_GEGLU,
                      KILN_INTERLEAVED,
                      KILN_ACCUMULATE_F16,
                      1,
                      0,
                      0,
                      allocate,
                      g_memory,
                      &bound,
                      KILN_PDL_WEIGHTS,
                      0,
                      &offsets,
                      &counts,
                      7};
  const GemmOptions options = options_of(&c);
  CHECK((options.trans_a && !options.trans_b));
  CHECK(options.bias.data == bias.data);
  CHECK(options.residual.data == residual.data);
  CHECK(options.scale_a.data == scale_a.data);
  CHECK(options.scale_b.data == scale_b.data);
  CHECK((options.offsets.data == offsets.data && options.counts.data == counts.data));
  CHECK(options.expected_rows == 7);
  CHECK(options.alpha == 0.5f);
  CHECK(options.epilogue == "acc");
  CHECK(options.bound_epilogue == &bound.epilogue);
  REQUIRE(options.config);
  CHECK((options.config->block_m == 1 && options.config->block_n == 2));
  CHECK((options.config->block_k == 3 && options.config->stages == 4));
  CHECK((options.config->cluster == 5 && options.config->splits == 6));
  CHECK(options.activation == Activation::geglu);
  CHECK(options.gate == Gate::interleaved);
  CHECK(options.accumulator == Accumulator::f16);
  CHECK((options.allow_tf32 && !options.fast));
  CHECK(options.pdl == Pdl::weights);
  CHECK((options.workspace.allocate == allocate && options.workspace.context == g_memory));
  c.trans_a = c.allow_tf32 = 0;
  c.trans_b = c.fast = 1;
  CHECK((!options_of(&c).trans_a && options_of(&c).trans_b));
  CHECK((!options_of(&c).allow_tf32 && options_of(&c).fast));
  c.pdl = 3;
  CHECK(mentions(message_of<std::invalid_argument>([&] { options_of(&c); }),
                 "gemm: pdl must be one of the values that kiln/c.h lists, 0 to 2, got 3"));
  c.pdl = KILN_PDL_ON, c.reserved_last = 1;
  CHECK(mentions(message_of<std::invalid_argument>([&] { options_of(&c); }),
                 "kiln_gemm_options: reserved must be 0, got 1"));
}

TEST_CASE("the norms' options arrive from C") {
  const kiln_tensor residual = tensor(1), sums = tensor(2);
  const float eps = 0.25f;
  const kiln_norm_options c{sizeof c, &eps,           &residual, &sums,
                            1.5f,     KILN_GELU_TANH, allocate,  g_memory};
  const NormOptions options = options_of("rms_norm", &c);
  CHECK(options.eps == 0.25f);
  CHECK(options.residual.data == residual.data);
  CHECK(options.residual_out.data == sums.data);
  CHECK(options.weight_offset == 1.5f);
  CHECK(options.activation == Activation::gelu_tanh);
  CHECK((options.workspace.allocate == allocate && options.workspace.context == g_memory));
  const auto zeros = zeroed<kiln_norm_options>();
  for (const NormOptions& defaults :
       {options_of("rms_norm", &zeros), options_of("rms_norm", nullptr)}) {
    CHECK_FALSE((defaults.eps || defaults.residual.given() || defaults.residual_out.given()));
    CHECK((defaults.weight_offset == 0 && defaults.activation == Activation::none));
  }
  auto wrong = zeros;
  wrong.activation = 99;
  CHECK(mentions(message_of<std::invalid_argument>([&] { options_of("layer_norm", &wrong); }),
                 "layer_norm: activation"));
}

TEST_CASE("zeroed options from C are the defaults, and so are null ones") {
  const auto c = zeroed<kiln_gemm_options>();
  for (const GemmOptions& options : {options_of(&c), options_of((kiln_gemm_options*)nullptr)}) {
    CHECK(options.alpha == 1.0f);
    CHECK_FALSE((options.bias.given() || options.scale_a.given() || options.config));
    CHECK((options.epilogue.empty() && options.pdl == Pdl::off));
  }
  const auto a = zeroed<kiln_attention_options>();
  CHECK((options_of(&a).window_left == -1 && options_of(&a).window_right == -1));
  CHECK_FALSE(options_of(&a).scale);
}

TEST_CASE("a struct_size that nobody set is refused") {
  kiln_gemm_options c{};
  for (const std::size_t size : {0, 4, 12, 4104}) {
    c.struct_size = size;
    const auto message = message_of<std::invalid_argument>([&] { options_of(&c); });
    CHECK(mentions(message, "must be sizeof(kiln_gemm_options), got " + std::to_string(size)));
  }
}

TEST_CASE("a variant's declarations arrive from C") {
  const kiln_variant_definition c{.struct_size = sizeof c,
                                  .name = "n",
                                  .params = "cap: f32; reach:i32",
                                  .tensors = " bias : bf16[h, q, kv] ; seen: bool[kv];",
                                  .logits = "l",
                                  .mask = "m",
                                  .file_text = "t",
                                  .file_name = "f"};
  const VariantDefinition d = definition_of(&c);
  CHECK((d.name == "n" && d.logits == "l" && d.mask == "m"));
  CHECK((d.file_text == "t" && d.file_name == "f"));
  REQUIRE(d.params.size() == 2);
  CHECK((d.params[0].name == "cap" && d.params[0].dtype == DType::f32));
  CHECK((d.params[1].name == "reach" && d.params[1].dtype == DType::i32));
  REQUIRE(d.tensors.size() == 2);
  CHECK((d.tensors[0].name == "bias" && d.tensors[0].dtype == DType::bf16));
  CHECK(d.tensors[0].indices == std::vector<std::string>{"h", "q", "kv"});
  CHECK((d.tensors[1].name == "seen" && d.tensors[1].dtype == DType::boolean));
}

}  // namespace kiln
