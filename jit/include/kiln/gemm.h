// Matrix products with their epilogue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/activation.h"
#include "kiln/export.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"
#include "kiln/workspace.h"

namespace KILN_PUBLIC kiln {

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
// The dtype of `out` where the caller names none: a's, bf16 for 8-bit floats.
DType gemm_output_dtype(DType input);

// Plan::launch takes the pointers of a, b, out, bias, residual, scale_a, scale_b, of these what was
// given. a and b must be multiples of 16 bytes when both and their strides were, the others when
// all of them were, but for a scale that is no vector of columns; else of the element's size.
Plan plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
               const GemmOptions& options = {});
// `plan` is empty unless the Status is ok.
Status try_plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                     const GemmOptions& options, std::optional<Plan>& plan) noexcept;

// What a call would run, without running it, as JSON: see explain in kiln/control.h.
std::string explain_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                         const GemmOptions& options);

// The tiles that GEMMs of a spec (docs/prewarm.md, without tile fields) are chosen among on an
// arch, as JSON: [{"block_m", "block_n", "block_k", "stages", "cluster", "splits"}], each a
// GemmTile without the fields that are 0; tiles that share K once for each number of CTAs that `k`
// allows (0 = any).
std::string list_gemm_configs(const std::string& spec, const std::string& arch, std::int64_t k = 0);

// The measured table of GEMM tiles that calls of this process ask before the cost model, as
// KILN_TUNING does; empty = none. Returns the previous one's path. A file that cannot be read or is
// no such table is std::invalid_argument, and changes nothing. See docs/tuning.md.
std::string set_tuning(const std::string& path);

}  // namespace KILN_PUBLIC kiln
