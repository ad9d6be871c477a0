// Kiln's public C++ API: attention and GEMM on views of device memory, or of host memory where the
// emulated device computes (set_device in kiln/control.h); such calls return when they are done.
//
// Every function is thread-safe, enqueues on `stream` (a CUstream or cudaStream_t; null = the
// default stream) and returns without waiting. The first call of a kind compiles a kernel or reads
// it from the cache; later ones launch in about a microsecond. Nothing allocates device memory:
// where a call needs some, it asks its options' Workspace.
//
// Throws: std::invalid_argument (kiln::TypeError for dtypes) with one sentence that names the
// argument; CompileError, CudaError, EmulatorError and CompileDisabled, see kiln/error.h. Each
// operation, plan and launch has a noexcept twin, try_*, that returns a Status.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kiln/error.h"
#include "kiln/export.h"
#include "kiln/tensor.h"
#include "kiln/variant.h"

namespace KILN_PUBLIC kiln {

enum class StatusCode {
  ok,
  invalid_argument,
  type_error,
  compile_error,
  cuda_error,
  compile_disabled,
  emulator_error,
  internal
};
struct Status {
  StatusCode code = StatusCode::ok;
  std::string message;
  bool ok() const { return code == StatusCode::ok; }
};

// Memory that a call needs beside its tensors, on their device: where a few output tiles have much
// to sum up, several blocks share each and meet there. Without a workspace such calls run unsplit,
// several times slower.
struct Workspace {
  // Called at most once in a call: `bytes` of memory, aligned to 16, not necessarily zeroed, that
  // stays until the call's work on its stream is done. Null = no workspace.
  void* (*allocate)(void* context, std::size_t bytes) = nullptr;
  void* context = nullptr;
};

// ---------------------------------------------------------------------------------- attention

enum class AttentionLayout { bshd, bhsd };

struct AttentionOptions {
  bool causal = false;    // aligned bottom-right: query i sees keys up to i + len_kv - len_q
  bool top_left = false;  // with causal: query i sees keys up to i instead; excludes a window
  // Keys visible before and after the diagonal one, both inclusive; -1 = open.
  std::int64_t window_left = -1, window_right = -1;
  float softcap = 0.0f;          // 0 = none; else cap * tanh(logit / cap) after the scale
  std::optional<float> scale{};  // default 1 / sqrt(head_dim)
  TensorView sinks{};            // [heads], f32, f16 or bf16: one more logit in the denominator
  TensorView alibi_slopes{};     // [heads] or [batch, heads], f32: logit -= slope * |q - kv|
  // [batch or 1, heads or 1, len_q or 1, len_kv or 1] with any strides; expanded dimensions
  // (stride 0) cost nothing. boolean: true = visible. f32 or q's dtype: added to the logits.
  TensorView attn_mask{};
  const BoundVariant* variant = nullptr;
  AttentionLayout layout = AttentionLayout::bshd;
  Workspace workspace{};
};

// out = softmax(scale * q k^T, options) v.
//   q [batch, len_q, heads, head_dim], k [batch, len_kv, heads_kv, head_dim],
//   v [batch, len_kv, heads_kv, head_dim_v], out [batch, len_q, heads, head_dim_v]
// (bhsd: heads before lengths). f16 or bf16, all alike. heads is a multiple of heads_kv; head dims
// are multiples of 8 up to 256; the last stride is 1, the others are free. `lse`, when given:
// f32 [batch, heads, len_q] with a unit last stride, natural logarithm, without the sink.
// A row without visible keys gives out = 0 and lse = -infinity.
void flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& out, const TensorView& lse,
                     const AttentionOptions& options = {}, void* stream = nullptr);
Status try_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                           const TensorView& out, const TensorView& lse,
                           const AttentionOptions& options = {}, void* stream = nullptr) noexcept;

struct SdpaOptions {
  bool is_causal = false;        // aligned top-left: query i sees keys up to i; excludes attn_mask
  std::optional<float> scale{};  // default 1 / sqrt(head_dim)
  bool enable_gqa = false;       // heads of key and value divide query's instead of being equal
  Workspace workspace{};         // not asked where the batch takes several launches
};

// PyTorch's scaled_dot_product_attention, forward and without dropout:
//   query [batch.., heads, len_q, head_dim], key [batch.., heads, len_kv, head_dim],
//   value [batch.., heads, len_kv, head_dim_v], out [batch.., heads, len_q, head_dim_v]
// of 2 to 5 dimensions, f16 or bf16, with a unit last stride. Batch dimensions and, without
// enable_gqa, heads broadcast where they are 1 or missing. `attn_mask`, when given, broadcasts to
// [batch.., heads, len_q, len_kv] and is read with its own strides, never expanded: boolean (true =
// visible), or f32 or query's dtype, added to the logits. A row without visible keys gives 0.
// A batch of two dimensions that do not lie in memory as one is computed by a launch for each entry
// of the first.
void scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                  const TensorView& value, const TensorView& attn_mask,
                                  const TensorView& out, const SdpaOptions& options = {},
                                  void* stream = nullptr);
Status try_scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                        const TensorView& value, const TensorView& attn_mask,
                                        const TensorView& out, const SdpaOptions& options = {},
                                        void* stream = nullptr) noexcept;

// --------------------------------------------------------------------------------------- GEMM

// The last three are gated: of a pair of columns of b, silu, gelu or gelu_tanh of the first, the
// gate, times the second.
enum class Activation : std::uint8_t {
  none,
  relu,
  gelu,
  gelu_tanh,
  silu,
  swiglu,
  geglu,
  geglu_tanh
};
Activation parse_activation(const std::string& name);  // "" = none; "gelu" and "geglu" are erf

// Where the b of a gated activation, [k, 2 h], has column c's gate and its partner: c and h + c, or
// 2 c and 2 c + 1. none: halves, or no gated activation.
enum class Gate : std::uint8_t { none, halves, interleaved };
Gate parse_gate(const std::string& name);  // "" = none

enum class Accumulator : std::uint8_t { f32, f16 };

// Overrides the tile; must be a row of the config table ("kiln inspect gemm" lists them).
struct GemmTile {
  int block_m = 0, block_n = 0, block_k = 0, stages = 0;
  int cluster = 0;  // thread blocks that share operands; 0 = any
  int splits = 0;   // thread blocks of a cluster that share K of a tile; 0 = any
};

struct GemmOptions {
  bool trans_a = false, trans_b = false;  // shorthand for transposing the last two dimensions
  TensorView bias{};                      // [n] or [batch, 1, n]
  TensorView residual{};                  // like out
  Activation activation = Activation::none;
  Gate gate = Gate::none;
  float alpha = 1.0f;
  // f32, factors of the sum beside alpha: [] or [1] for all outputs, [m] or [m, 1] for each row;
  // with a batch also [batch, m, 1] instead. Read by the kernel, so nothing waits for their values.
  TensorView scale_a{};
  TensorView scale_b{};     // likewise: [] or [1]; [n] or [1, n] for each column; [batch, 1, n]
  bool allow_tf32 = false;  // required for f32 inputs
  // For f8 inputs: sums over all of K stay in the tensor cores, which keep about 14 bits of them.
  // Without it they are added up in f32 after every 128 of K.
  bool fast = false;
  Accumulator accumulator = Accumulator::f32;
  // A C++ expression of `acc` (alpha * the sum * the scales, float), `bias`, `residual` (floats),
  // `row`, `col` and `batch` that replaces bias, activation and residual. Empty = none. Read during
  // the call.
  std::string_view epilogue{};
  std::optional<GemmTile> config{};
  Workspace workspace{};
};

// out = cast(activation(alpha * a b * scale_a * scale_b + bias) + residual); a [m, k] or
// [batch, m, k], b [k, n] or [batch, k, n], out [m, n] or [batch, m, n]; a batch of 1 or a missing
// one is broadcast. With a gated activation n is 2 h: out and residual are [m, h], bias and scale_b
// have an entry for each column of b, and out = cast(act(gate) * partner + residual) of the two
// columns' alpha * a b * scale_a * scale_b + bias. f16, bf16 or f32 (tf32), a and b alike; out may
// be any of the three. One of the last two strides of a and of b is 1; out's and residual's last
// stride is 1.
//
// On compute capability 9.0, a and b may also be f8_e4m3 or f8_e5m2, alike or not. They then have a
// stride of 1 along k (b is the transposed view of an [n, k] weight), bases and other strides that
// are multiples of 16 bytes, and a k of 1 or more.
void gemm(const TensorView& a, const TensorView& b, const TensorView& out,
          const GemmOptions& options = {}, void* stream = nullptr);
Status try_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                const GemmOptions& options = {}, void* stream = nullptr) noexcept;

// The shape of `out` for these inputs, contiguous, data null. Throws as gemm does.
TensorView gemm_output(const TensorView& a, const TensorView& b, DType out_dtype,
                       const GemmOptions& options = {});
TensorView flash_attention_output(const TensorView& q, const TensorView& v);
TensorView scaled_dot_product_attention_output(const TensorView& query, const TensorView& key,
                                               const TensorView& value, bool enable_gqa = false);

// --------------------------------------------------------------------------------------- plans

// One call prepared: arguments checked, the kernel resident. Cheap to copy, thread-safe.
class Plan {
 public:
  struct Impl;
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  // Device memory that launch needs beside its tensors, aligned to 16 and not necessarily zeroed.
  // Of launches that may overlap each needs its own.
  std::size_t workspace_bytes() const;
  // Pointers of the tensors that were given when planning, in this order:
  // - of attention: q, k, v, out, lse, alibi_slopes, attn_mask, sinks, then the variant's
  // - of gemm: a, b, out, bias, residual, scale_a, scale_b
  // Shapes and strides are the planned ones. Where the plan's kernel moves whole vectors, its
  // pointers must be multiples of 16 bytes: q to out when these four and their strides were (null
  // counts as such), a and b when both were, the rest of gemm's when all of them were, but for
  // a scale that is no vector of columns. Everywhere else, multiples of the element's size; of two
  // elements for an attn_mask whose keys are neighbours of even number, with other strides even.
  void launch(std::span<void* const> pointers, void* stream = nullptr,
              void* workspace = nullptr) const;
  void launch(std::initializer_list<void*> pointers, void* stream = nullptr,
              void* workspace = nullptr) const {
    launch(std::span(pointers.begin(), pointers.size()), stream, workspace);
  }
  Status try_launch(std::span<void* const> pointers, void* stream = nullptr,
                    void* workspace = nullptr) const noexcept;
  Status try_launch(std::initializer_list<void*> pointers, void* stream = nullptr,
                    void* workspace = nullptr) const noexcept {
    return try_launch(std::span(pointers.begin(), pointers.size()), stream, workspace);
  }

 private:
  std::shared_ptr<const Impl> impl_;
};
Plan plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options = {});
Plan plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
               const GemmOptions& options = {});
// `plan` is empty unless the Status is ok.
Status try_plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                const TensorView& out, const TensorView& lse,
                                const AttentionOptions& options,
                                std::optional<Plan>& plan) noexcept;
Status try_plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                     const GemmOptions& options, std::optional<Plan>& plan) noexcept;

}  // namespace KILN_PUBLIC kiln
