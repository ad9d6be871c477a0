// The problems of GEMM's kernels.
#include <algorithm>
#include <cmath>

#include "jit/gemm/config.h"
#include "jit/gemm/family.h"
#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "templates/gemm/params.h"
#include "tests/emulator/kernel_case.h"
#include "tests/emulator/reference.h"

namespace kiln::testing {
namespace {

// The tile of a GEMM's row, of either table.
GemmTile tile_of(const Specialization& spec) {
  const auto row = static_cast<std::size_t>(spec.row());
  if (&spec.kernel() == &kGemmSm90) {
    const GemmSm90Config& config = gemm_sm90_configs()[row];
    return {config.block_m, config.block_n, config.block_k, config.stages, config.cluster, 0};
  }
  const GemmConfig& config = gemm_configs()[row];
  return {config.block_m, config.block_n, config.block_k, config.stages, 1, 0};
}

// Cuts off what 8 bits cannot hold, and returns half a step as a part of typical values.
double saturate(DType dtype, std::vector<double>& values) {
  double squares = 0;
  for (double& value : values) {
    if (dtype == DType::i8) value = std::clamp(value, -128.0, 127.0);
    if (dtype == DType::f8_e4m3) value = std::clamp(value, -448.0, 448.0);
    squares += value * value;
  }
  if (dtype != DType::i8) return dtype == DType::f8_e4m3 ? 1.0 / 16 : 1.0 / 8;
  return 0.5 / std::sqrt(squares / static_cast<double>(values.size()));
}

// The matrix as so many of a batch, which are all the same memory.
TensorView repeated(TensorView matrix, std::int64_t count) {
  for (int i = matrix.rank++; i > 0; --i) {
    matrix.shape[i] = matrix.shape[i - 1], matrix.strides[i] = matrix.strides[i - 1];
  }
  matrix.shape[0] = count, matrix.strides[0] = 0;
  return matrix;
}

}  // namespace

void KernelCase::make_gemm(int size) {
  const auto traits = spec_.traits_as<GemmTraits>();
  const GemmTile config = tile_of(spec_);
  GemmReference problem;
  problem.traits = traits;
  problem.m = config.block_m + 8;
  // Rows of the output are whole vectors. A cluster along N has more than one tile for each CTA.
  const int vector = is_quantized(traits.output) ? 16 : 8;
  problem.n = config.block_n * config.cluster + (traits.gate == Gate::none ? vector : 2 * vector);
  const int columns = traits.gate == Gate::none ? problem.n : problem.n / 2;
  problem.k = config.block_k * (config.stages + 1 - size) + 16 / size_of(traits.input);
  Tensor& a = tensor(traits.input, {problem.m, problem.k}, traits.major_a == Major::mn);
  Tensor& b = tensor(traits.dtype_b(), {problem.k, problem.n}, traits.major_b == Major::k);
  GemmOptions options;
  options.fast = traits.fast;
  const auto add_scale = [&](const Tensor& made, TensorView& view, std::vector<float>& values) {
    view = made.view;
    values = made.values;
  };
  const auto add_factors = [&](Scale scale, TensorView& view, std::vector<float>& values,
                               int length) {
    if (scale == Scale::none || is_of_blocks(scale)) return;
    add_scale(tensor(DType::f32, {scale == Scale::tensor ? 1 : length}), view, values);
  };
  add_factors(traits.scale_a, options.scale_a, problem.scale_a, problem.m);
  add_factors(traits.scale_b, options.scale_b, problem.scale_b, problem.n);
  if (traits.block_scaled()) {
    const int groups = (problem.k + 127) / 128;
    const int columns = traits.scale_b == Scale::groups ? problem.n : (problem.n + 127) / 128;
    const DType dtype = traits.scale_dtype == DType::none ? DType::f32 : traits.scale_dtype;
    add_scale(tensor(dtype, {problem.m, groups}, true), options.scale_a, problem.scale_a);
    add_scale(tensor(dtype, {groups, columns}, true), options.scale_b, problem.scale_b);
  }
  options.activation = traits.activation;
  options.gate = traits.gate;
  options.accumulator = traits.accumulator;
  options.allow_tf32 = traits.input == DType::f32;
  if (traits.bias != DType::none) {
    Tensor& bias = tensor(traits.bias, {problem.n});
    options.bias = bias.view;
    problem.bias = bias.values;
  }
  if (traits.residual != DType::none) {
    Tensor& residual = tensor(traits.residual, {problem.m, columns});
    options.residual = residual.view;
    problem.residual = residual.values;
  }
  problem.a = a.values;
  problem.b = b.values;
  Tensor& out = tensor(traits.output, {problem.m, columns});
  weights_ahead_ = size == 1;
  options.pdl = weights_ahead_ ? Pdl::weights : Pdl::on;
  // Groups of 5, 0 and the other rows by offsets, or one of all rows, whose matrices are one.
  TensorView rows = a.view, matrices = b.view, results = out.view;
  if (traits.grouping == Grouping::offsets) {
    options.offsets = integers({3}, {5, 5, problem.m}).view;
    matrices = repeated(matrices, 3);
  } else if (traits.grouping == Grouping::counts) {
    options.counts = integers({1}, {problem.m}).view;
    for (TensorView* view : {&rows, &matrices, &results}) *view = repeated(*view, 1);
    if (options.residual.given()) options.residual = repeated(options.residual, 1);
  }
  GemmProblem call;
  check_gemm(rows, matrices, results, options, call);
  // Four tiles: whole; all in two parts; two of them in three. Groups have whole tiles alone.
  const bool whole_alone = size == 0 || traits.grouping != Grouping::none;
  const int splits = size + 1, whole = size == 2 ? 2 : 0;
  const auto tiles_of = [&](int count) {
    return gemm_tiles(count, problem.n, 1, config.block_m, config.block_n);
  };
  const bool by_offsets = traits.grouping == Grouping::offsets;
  const long long tiles = by_offsets ? tiles_of(5) + tiles_of(problem.m - 5) : tiles_of(problem.m);
  const long long parts = whole_alone ? 0 : (tiles - whole) * splits;
  Step& step = call.recipe.first();
  step.spec = spec_;
  step.programmatic = arch_table()[static_cast<std::size_t>(spec_.arch())].number >= 90;
  if (&spec_.kernel() == &kGemmSm90) {
    // One cluster computes all tiles; all but one of them have their own; two clusters share them.
    // Where CTAs share K of a tile: one, three, four for each, with an odd or an even part.
    const GemmSm90Config& row = gemm_sm90_configs()[static_cast<std::size_t>(spec_.row())];
    const bool shares = row.splits;
    const int sharing = size == 0 ? 1 : size + 2;
    const auto all = static_cast<unsigned>(tiles);
    // A cluster of a row with splits has as many tiles as CTAs that share columns.
    const auto shared = static_cast<unsigned>(
        gemm_tiles(problem.m, problem.n, 1, config.block_m * config.cluster, config.block_n));
    const unsigned clusters = shares && config.cluster > 1 ? shared
                              : shares                     ? all
                              : size == 1                  ? std::max(all, 2u) - 1
                                                           : 1u + (size == 2);
    step.cluster = static_cast<unsigned>(shares ? sharing * config.cluster : config.cluster);
    step.blocks = clusters * step.cluster;
    set_raster(call, row, shares ? sharing : 1, step);
    if (row.apart) {
      step.cluster = static_cast<unsigned>(row.cluster);
      want_parts(call, row, sharing, step);
    }
  } else {
    // A host that knows bounds of the groups alone launches blocks without a tile, too.
    const int idle = traits.grouping == Grouping::none ? 0 : 2;
    step.blocks = static_cast<unsigned>(whole_alone ? tiles + idle : whole + parts);
    call.recipe.workspace_bytes =
        static_cast<std::size_t>(gemm_workspace_bytes(parts, config.block_m, config.block_n));
    if (parts != 0) {
      step.arguments.set_int(offsetof(GemmParams, splits), splits);
      step.arguments.set_int(offsetof(GemmParams, whole_tiles), whole);
      step.arguments.want_workspace(offsetof(GemmParams, workspace), 0, call.recipe.workspace_bytes,
                                    offsetof(GemmParams, nonce));
    }
  }
  recipe_ = call.recipe;
  // Half-precision sums are rounded at every step of 16; the others once.
  const bool half_sums = traits.accumulator == Accumulator::f16;
  double tolerance = epsilon(traits.output) * (half_sums ? 4 * std::sqrt(problem.k / 16.0) : 1);
  // The tensor cores cut all terms of a sum of 8-bit floats to 13 bits at every step of 32: for a
  // K-tile of 128, or, fast, for all of K.
  if (is_f8(traits.input)) tolerance += traits.fast ? 0.02 : 0.003;
  std::vector<double> expected = reference(problem);
  if (is_quantized(traits.output)) tolerance += saturate(traits.output, expected);
  outputs_.push_back({&out, std::move(expected), tolerance});
}

}  // namespace kiln::testing
