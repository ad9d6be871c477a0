// GEMM's call, checked: what is baked into its kernel (traits), what chooses the config row, and
// the packed arguments. Every argument error ends in these checks, in one sentence.
#pragma once

#include <optional>

#include "jit/op/launch.h"
#include "jit/op/names.h"
#include "kiln/gemm.h"

namespace kiln {

// What a scale is a factor of: all outputs, or each row (scale_a) or column (scale_b) its own; or,
// of both operands at once, each row or column its own for every 128 of K (groups), or every 128
// columns of b (blocks).
enum class Scale : std::uint8_t { none, tensor, vector, groups, blocks };

inline constexpr Named kScaleBNames[] = {{"none", Scale::none},
                                         {"tensor", Scale::tensor},
                                         {"vector", Scale::vector},
                                         {"groups", Scale::groups},
                                         {"blocks", Scale::blocks}};
inline constexpr auto kScaleANames = std::span(kScaleBNames).first<4>();
// Scales of blocks have one of these dtypes; all others are float32.
inline constexpr Named kScaleDTypeNames[] = {{"float32", DType::none},
                                             {"float8_e8m0fnu", DType::f8_e8m0}};
inline bool is_of_blocks(Scale scale) { return scale >= Scale::groups; }

// How rows of a belong to the matrices of b: each batch entry of a has its own; or rows in groups,
// whose ends in a, or whose numbers of rows, are in device memory (templates/gemm/groups.cuh).
enum class Grouping : std::uint8_t { none, offsets, counts };

inline constexpr Named kGroupingNames[] = {
    {"none", Grouping::none}, {"offsets", Grouping::offsets}, {"counts", Grouping::counts}};

inline constexpr Named kGateNames[] = {{"halves", Gate::halves},
                                       {"interleaved", Gate::interleaved}};
inline constexpr Named kPrecisionNames[] = {{"full", false}, {"fast", true}};
inline constexpr Named kAccumulatorNames[] = {{"float32", Accumulator::f32},
                                              {"float16", Accumulator::f16}};

// What GEMM's kernels are specialised for, as Traits.
struct GemmTraits {
  DType input = DType::bf16;  // of a, and of b unless input_b tells
  DType output = DType::bf16;
  DType bias = DType::none;
  DType residual = DType::none;
  Accumulator accumulator = Accumulator::f32;
  Major major_a = Major::k;
  Major major_b = Major::k;
  Activation activation = Activation::none;
  Access loads = Access::vectors;   // of a and b
  Access stores = Access::vectors;  // of out; `boxes` where bias or residual admit no vectors
  DType input_b = DType::none;      // none: like `input`
  Scale scale_a = Scale::none;
  Scale scale_b = Scale::none;
  bool fast = false;       // f8 sums stay in the tensor cores
  Gate gate = Gate::none;  // not none: the activation is gated
  Grouping grouping = Grouping::none;
  DType scale_dtype = DType::none;  // of scales of blocks; none: f32
  std::uint8_t reserved[15] = {};
  Digest128 epilogue{};  // of the user's expression; zero = none

  bool block_scaled() const { return is_of_blocks(scale_a); }
  DType dtype_b() const { return input_b == DType::none ? input : input_b; }

  bool operator==(const GemmTraits&) const = default;
};
static_assert(is_traits<GemmTraits>);

struct GemmProblem : Problem {
  GemmTraits traits;
  int m = 0, n = 0, k = 0, batch = 0;  // n: columns of b, two for each of a gated output
  std::int64_t expected_rows = 0;      // of a group; 0: unknown
  std::optional<GemmTile> tile;
  Pdl pdl = Pdl::off;
  std::int64_t measured_m = 0;  // set by resolve(): of the tuning entry that named the row; 0: none

  GemmProblem() { op = "gemm"; }
  bool empty() const { return m == 0 || n == 0 || batch == 0; }
};

// Fills `problem`. Throws std::invalid_argument or TypeError.
void check_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                const GemmOptions& options, GemmProblem& problem);

// Completes the recipe: the kernel, its grid, and how far the K of a tile is split, which takes a
// workspace in the portable kernel and so the caller's leave. Throws std::invalid_argument when the
// problem's tile names no row.
void resolve(GemmProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const GemmProblem& problem);

// Notes at which pointers a kernel of these traits reads or writes whole vectors or boxes.
void require_vectors(const GemmTraits& baked, CallArguments& arguments);

}  // namespace kiln
