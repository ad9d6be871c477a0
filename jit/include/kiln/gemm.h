// Matrix products with their epilogue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/activation.h"
#include "kiln/epilogue.h"
#include "kiln/export.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"
#include "kiln/workspace.h"

namespace KILN_PUBLIC kiln {

// A gated activation takes two columns of b, [k, 2 h], for column c of the output: the gate and the
// value that it multiplies. They are columns c and h + c (halves) or 2 c and 2 c + 1 (interleaved).
// none means halves, and is the only choice without a gated activation.
enum class Gate : std::uint8_t { none, halves, interleaved };
Gate parse_gate(const std::string& name);  // "" = none

enum class Accumulator : std::uint8_t { f32, f16 };

// Programmatic dependent launch (compute capability 9.0 and later; before, it has no effect). on:
// the launch may begin before the kernel before it in the stream has ended, if that kernel allows
// it, as all GEMMs of Kiln do; it waits for all earlier kernels before it reads or writes memory.
// weights: moreover, b may be read ahead of that wait. The caller promises that no kernel writes b
// that may still run then: neither the one before this in the stream, nor those which that one did
// not wait for.
enum class Pdl : std::uint8_t { off, on, weights };

// Overrides the choice of the tile. It must be a row of the config table, which "kiln inspect gemm"
// lists.
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
  // The sum is multiplied by these f32 factors and by alpha. scale_a is [] or [1] for all outputs,
  // or [m], [m, 1], [batch, m] or [batch, m, 1] with one for each row, where the batch may be 1.
  // The kernel reads them, so the call does not wait for their values.
  TensorView scale_a{};
  TensorView scale_b{};     // likewise: [] or [1], or [n], [1, n], [batch, n] or [batch, 1, n] for
                            // columns or, of f8 inputs, both are scales of blocks: see gemm()
  bool allow_tf32 = false;  // required for f32 inputs
  // For f8 inputs: keeps the sums over all of K in the tensor cores, which have about 14 bits.
  // Without it, the sums are added up in f32 after every 128 of K.
  bool fast = false;
  Accumulator accumulator = Accumulator::f32;
  // A C++ expression of `acc` (float: the sum times alpha and the scales), `bias`, `residual`
  // (floats), `row`, `col`, `batch`, `m` and `n`. It replaces bias, activation and residual. Empty
  // means none. The text is read during the call.
  std::string_view epilogue{};
  // One with parameters and tensors instead (kiln/epilogue.h), which must live during the call.
  const BoundEpilogue* bound_epilogue = nullptr;
  // Rows in groups, at most one of the two: i32 [groups], in device memory. See gemm().
  TensorView offsets{};
  TensorView counts{};
  std::int64_t expected_rows = 0;  // of a group: a hint for the choice of the tile; 0 = unknown
  std::optional<GemmTile> config{};
  Workspace workspace{};
  Pdl pdl = Pdl::off;
};

// out = cast(activation(alpha * a b * scale_a * scale_b + bias) + residual), with a [m, k] or
// [batch, m, k], b [k, n] or [batch, k, n], and out [m, n] or [batch, m, n]. A batch of 1 or a
// missing one is broadcast. a and b have the same dtype, f16, bf16 or f32 (computed as tf32); out
// may have any of the three, or be f8_e4m3, f8_e5m2 or i8, to which the result is rounded (to
// nearest even; what is too large becomes the largest number, and a NaN the integer 0). One of the
// last two strides of a and of b must be 1, and so must the last stride of out and residual.
// out may be residual itself, with its dtype and strides; otherwise it must not overlap an input:
// std::invalid_argument where addresses and strides prove that it does.
//
// With a gated activation n is 2 h: out and residual are [m, h], bias and scale_b have an entry for
// each column of b, and out = cast(act(gate) * partner + residual), where gate and partner are
// alpha * a b * scale_a * scale_b + bias of the two columns.
//
// On compute capability 9.0, a and b may also be f8_e4m3 or f8_e5m2, in any combination. They must
// then have a stride of 1 along k (b is the transposed view of an [n, k] weight), addresses and
// other strides that are multiples of 16 bytes, and a k of 1 or more.
//
// Scales of blocks are of f8 inputs: scale_a is [m, k / 128], one for each row and 128 of k, and
// scale_b is [k / 128, n / 128], one for each 128 x 128 block of b, or [k / 128, n], one for each
// column and 128 of k. Quotients are rounded up. A batch may come first, and strides are any. Both
// are f32, or both f8_e8m0, whose results are the same bits as those of the same numbers in f32.
// trans_a and trans_b count for them as for their operands. The products of each 128 of k are
// multiplied by their two factors and added up in f32. It takes neither `fast` nor a gated
// activation. Where k is up to 128, a vector beside such a scale is one, too.
//
// Rows in groups are multiplied by matrices of their own (the experts of a MoE layer): b is
// [groups, k, n]. With `offsets`, a is [m, k] and out [m, n]: offsets[g] is where the rows of group
// g end, and those of the next one begin, so that rows from the last offset on belong to none. With
// `counts`, a is [groups, m, k] and out [groups, m, n], of whose m rows the first counts[g] belong
// to group g. Only rows of groups are written, and what others hold never matters, although the
// kernel may read it. Offsets and counts are read on the device, where they are clamped to a's
// rows; no content of theirs compiles a kernel, and a captured graph may be replayed with others.
// Groups may be empty and begin anywhere. a must be contiguous along k. A bias may be [groups, n],
// scale_a is as a without k, and scale_b may have the groups first: [groups, n], [groups, 1, n] or
// of blocks.
void gemm(const TensorView& a, const TensorView& b, const TensorView& out,
          const GemmOptions& options = {}, void* stream = nullptr);
Status try_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                const GemmOptions& options = {}, void* stream = nullptr) noexcept;

// A contiguous view with the shape of `out` for these inputs and a null pointer. Throws as gemm
// does.
TensorView gemm_output(const TensorView& a, const TensorView& b, DType out_dtype,
                       const GemmOptions& options = {});
// The default dtype of `out`: that of a, or bf16 for 8-bit floats.
DType gemm_output_dtype(DType input);

// Plan::launch takes the pointers of those of a, b, out, bias, residual, scale_a, scale_b and
// offsets or counts that were given to plan_gemm, and then those of the epilogue's tensors. If the
// planned pointers and strides of a and b were multiples of 16 bytes, the new pointers of a and b
// must be, too. The same holds for the others together, except for the epilogue's tensors and for a
// scale that is not a vector of columns. All pointers must be multiples of their element's size.
Plan plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
               const GemmOptions& options = {});
// `plan` is empty unless the Status is ok.
Status try_plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                     const GemmOptions& options, std::optional<Plan>& plan) noexcept;

// Tells as JSON what a call would run, without running it: see explain in kiln/control.h.
std::string explain_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                         const GemmOptions& options);

// The tiles among which a GEMM of this spec (docs/prewarm.md, without tile fields) is chosen on an
// arch, as JSON: [{"block_m", "block_n", "block_k", "stages", "cluster", "splits"}]. Each is a
// GemmTile without the fields that are 0. A tile whose CTAs share K is listed once for each number
// of CTAs that `k` allows (0 = any).
std::string list_gemm_configs(const std::string& spec, const std::string& arch, std::int64_t k = 0);

}  // namespace KILN_PUBLIC kiln
