#include "tests/emulator/kernel_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "jit/append_kv/family.h"
#include "jit/attention/config.h"
#include "jit/attention/family.h"
#include "jit/attention/sm90_config.h"
#include "jit/compile/kernel_source.h"
#include "jit/gemm/config.h"
#include "jit/gemm/family.h"
#include "jit/merge_states/family.h"
#include "jit/moe_permute/family.h"
#include "jit/moe_route/family.h"
#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "jit/op/source_text.h"
#include "jit/quantize/family.h"
#include "kiln/control.h"
#include "runtime/emulator/machine/emulated_device.h"
#include "templates/attention/params.h"
#include "templates/gemm/params.h"
#include "tests/emulator/kernel_values.h"
#include "tests/emulator/reference.h"

namespace kiln::testing {
namespace {

// The device that runs a kernel: of its own arch.
runtime::Device& device_of(const Specialization& spec) {
  return runtime::emulated_device(arch_table()[static_cast<std::size_t>(spec.arch())].name);
}

// A kernel's PTX as NVRTC made it, from the cache where it is there.
std::string ptx_of(const Specialization& spec) {
  const KernelSource source = source_of(spec, {});
  if (auto hit = disk_cache().get(source.key, cache::Payload::kCubinAndPtx)) return hit->entry.ptx;
  const cache::Entry entry = compile_entry(source, "an emulated test");
  disk_cache().put(source.key, entry);
  return entry.ptx;
}

LoadedKernel loaded(const Specialization& spec, const std::string& ptx) {
  const Footprint footprint = spec.kernel().footprint(spec);
  LoadedKernel kernel;
  kernel.threads = footprint.threads;
  kernel.dynamic_shared_bytes = footprint.dynamic_shared_bytes;
  kernel.kernel = device_of(spec).load({{}, ptx, kEntryName, kernel.dynamic_shared_bytes});
  return kernel;
}

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

// A problem must be larger than this tile; an sm_90a row is shown as if it were a portable one.
AttentionConfig config_of(const Specialization& spec) {
  const auto row = static_cast<std::size_t>(spec.row());
  if (&spec.kernel() == &kFlashAttention) return attention_configs()[row];
  const AttentionSm90Config& config = attention_sm90_configs()[row];
  AttentionConfig same{};
  same.block_q = config.block_q, same.block_kv = config.block_kv, same.stages = config.stages;
  same.teams = 1, same.splits = config.splits;
  return same;
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

// One CTA computes all tiles, all but one have their own, or two CTAs share them. Splits of few
// keys do not wait for all stages that are released unless one CTA has them all.
unsigned sm90_blocks(int size, unsigned tiles, bool splits) {
  return size == 1 ? tiles - 1 : size == 0 || splits ? 1 : 2;
}

}  // namespace

double KernelCase::epsilon(DType dtype) {
  return dtype == DType::bf16 ? 1.0 / 128 : dtype == DType::f16 ? 1.0 / 1024 : 1e-5;
}

KernelCase::Tensor& KernelCase::tensor(DType dtype, std::initializer_list<std::int64_t> shape,
                                       bool transposed) {
  Tensor& made = tensors_.emplace_back();
  TensorView& view = made.view;
  view.dtype = dtype;
  view.device_ordinal = ordinal_;
  std::int64_t count = 1;
  for (std::int64_t size : shape) {
    view.shape[view.rank++] = size;
    count *= size;
  }
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  const std::int64_t columns = view.shape[view.rank - 1];
  if (transposed) {
    view.strides[1] = view.shape[0];
    view.strides[0] = 1;
  }
  const auto bytes_each = static_cast<std::size_t>(size_of(dtype));
  made.bytes.resize(static_cast<std::size_t>(count) * bytes_each);
  std::mt19937 random(static_cast<unsigned>(tensors_.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = random_bits(dtype, random);
    const std::int64_t at =
        transposed ? i / columns * view.strides[0] + i % columns * view.strides[1] : i;
    std::byte* const place = made.bytes.data() + static_cast<std::size_t>(at) * bytes_each;
    std::memcpy(place, &bits, std::min(sizeof bits, bytes_each));
    made.values.push_back(value_at(place, dtype));
  }
  view.data = made.bytes.data();
  return made;
}

void KernelCase::make_attention(int size) {
  const auto traits = spec_.traits_as<AttentionTraits>();
  const AttentionConfig config = config_of(spec_);
  const bool is_sm90 = &spec_.kernel() == &kFlashAttentionSm90;
  AttentionReference problem;
  problem.traits = traits;
  problem.heads = 2;
  // A split row of sm_90a is launched with splits only, of which in size 2 one has no key.
  const bool splits_sm90 = config.splits && is_sm90;
  const int splits = splits_sm90 && size == 2 ? 3 : config.splits && (size != 1 || is_sm90) ? 2 : 1;
  const int stride = config.block_kv * config.teams;
  problem.len_q = config.splits ? config.block_q / 2 + 5 : config.block_q + 9;
  problem.len_kv = std::max(config.block_q + 2 * stride, splits * stride * (config.stages + 1)) + 5;
  if (size == 2) problem.len_kv = traits.mask == Mask::none && !is_sm90 ? 0 : 3;
  // The last queries alone see the second tile of keys under a causal mask.
  if (size == 2 && splits_sm90) problem.len_kv += config.block_kv;
  if (traits.mask_pairs) problem.len_kv &= ~1;
  problem.scale = (size == 1 ? -1 : 1) / std::sqrt(static_cast<double>(traits.head_dim));
  Tensor& q = tensor(traits.q, {1, problem.len_q, 2, traits.head_dim});
  Tensor& k = tensor(traits.q, {1, problem.len_kv, 1, traits.head_dim});
  Tensor& v = tensor(traits.q, {1, problem.len_kv, 1, traits.head_dim_v});
  AttentionOptions options;
  options.scale = static_cast<float>(problem.scale);
  options.causal = traits.mask == Mask::causal;
  if (traits.mask == Mask::window) {
    // Every team of a split walks through its ring.
    const int ring = config.teams > 1 ? splits * stride * config.stages : 0;
    options.window_left = problem.window_left = 70 + ring;
    options.window_right = problem.window_right = size == 2 ? 0 : 10;
  }
  if (traits.softcap) options.softcap = problem.softcap = 5.0f;
  if (traits.alibi) {
    Tensor& slopes = tensor(DType::f32, {2});
    options.alibi_slopes = slopes.view;
    problem.slopes = slopes.values;
  }
  if (traits.attn_mask != DType::none) {
    Tensor& mask = tensor(traits.attn_mask, {1, 2, problem.len_q, problem.len_kv});
    options.attn_mask = mask.view;
    problem.attn_mask = mask.values;
  }
  if (traits.sinks != DType::none) {
    Tensor& sinks = tensor(traits.sinks, {2});
    options.sinks = sinks.view;
    problem.sinks = sinks.values;
  }
  problem.q = q.values;
  problem.k = k.values;
  problem.v = v.values;
  Tensor& out = tensor(traits.q, {1, problem.len_q, 2, traits.head_dim_v});
  AttentionProblem call;
  check_attention(q.view, k.view, v.view, out.view, TensorView{}, options, call);
  const long long tiles =
      attention_tiles(1, 2, 1, problem.len_q, config.block_q, config.splits && !is_sm90);
  Step& step = call.recipe.first();
  step.spec = spec_;
  step.blocks = static_cast<unsigned>(tiles * splits);
  if (is_sm90) {
    step.blocks = sm90_blocks(size, static_cast<unsigned>(tiles * splits), config.splits);
    constexpr int kPaired[kSizes] = {2, 0, -1};  // heads are dealt in pairs, all together, singly
    step.arguments.set_int(offsetof(AttentionParams, heads_paired), kPaired[size]);
  }
  // On sm_90a, a warp's 16 rows are a tile of the workspace.
  const int shared_rows = is_sm90 ? 16 : config.block_q;
  call.recipe.workspace_bytes = static_cast<std::size_t>(attention_workspace_bytes(
      tiles * (config.block_q / shared_rows), splits, shared_rows, traits.head_dim_v));
  if (splits > 1) {
    step.arguments.set_int(offsetof(AttentionParams, splits), splits);
    step.arguments.want_workspace(offsetof(AttentionParams, workspace), 0,
                                  call.recipe.workspace_bytes, offsetof(AttentionParams, nonce));
  }
  recipe_ = call.recipe;
  // P is rounded to the inputs' dtype, and so is the output; weights sum to at most 1.
  outputs_.push_back({&out, reference(problem), 2 * epsilon(traits.q)});
}

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
    add_scale(tensor(DType::f32, {problem.m, groups}, true), options.scale_a, problem.scale_a);
    add_scale(tensor(DType::f32, {groups, columns}, true), options.scale_b, problem.scale_b);
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
  GemmProblem call;
  check_gemm(a.view, b.view, out.view, options, call);
  // Four tiles: whole; all in two parts; two of them in three.
  const int splits = size + 1, whole = size == 2 ? 2 : 0;
  const long long tiles = gemm_tiles(problem.m, problem.n, 1, config.block_m, config.block_n);
  const long long parts = size == 0 ? 0 : (tiles - whole) * splits;
  Step& step = call.recipe.first();
  step.spec = spec_;
  if (&spec_.kernel() == &kGemmSm90) {
    // One cluster computes all tiles; all but one of them have their own; two clusters share them.
    // Where CTAs share K of a tile: one, three, four for each, with an odd or an even part.
    const bool shares = gemm_sm90_configs()[static_cast<std::size_t>(spec_.row())].splits;
    const int sharing = size == 0 ? 1 : size + 2;
    const auto all = static_cast<unsigned>(tiles);
    const unsigned clusters = shares ? all : size == 1 ? std::max(all, 2u) - 1 : 1u + (size == 2);
    step.cluster = static_cast<unsigned>(shares ? sharing : config.cluster);
    step.blocks = clusters * step.cluster;
  } else {
    step.blocks = static_cast<unsigned>(size == 0 ? tiles : whole + parts);
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

KernelCase::KernelCase(const Specialization& spec, int size)
    : spec_(spec), ordinal_(device_of(spec).info().ordinal) {
  set_python_paths({KILN_TEST_SITE_PACKAGES});  // where pip put NVRTC
  const Family* const family = spec.kernel().family;
  const bool is_attention = family == &kAttention;
  if (is_attention && spec.traits_as<AttentionTraits>().storage != Storage::dense)
    make_varlen(spec, size);
  else if (is_attention)
    make_attention(size);
  else if (family == &kPlanAttention)
    make_plan(size);
  else if (family == &kGemm)
    make_gemm(size);
  else if (family == &kMergeStates)
    make_merge_states(size);
  else if (family == &kMoeRoute)
    make_moe_route(size);
  else if (family == &kMoePermute)
    make_moe_permute(size);
  else if (family == &kMoeUnpermute)
    make_moe_unpermute(size);
  else if (family == &kQuantize)
    make_quantize(size);
  else if (family == &kAppendKv)
    make_append_kv(size);
  else
    make_norm(size);
  ptx_ = ptx_of(spec_);
  std::size_t i = 0;
  for (const Step& step : recipe_.steps()) {
    if (!(step.spec == spec_)) {
      partners_[i] = &loaded_.emplace_back(loaded(step.spec, ptx_of(step.spec)));
    }
    ++i;
  }
}

std::vector<std::byte> KernelCase::run(const std::string& ptx,
                                       const runtime::emulator::Options& options) {
  runtime::Device& device = device_of(spec_);
  runtime::set_emulator_options(options);
  for (const Output& output : outputs_) {  // NaN: what is not written shows
    std::memset(output.tensor->bytes.data(), 0xff, output.tensor->bytes.size());
  }
  const LoadedKernel kernel = loaded(spec_, ptx);
  // What an earlier call left, or anything else.
  if (workspace_.empty()) workspace_.resize(recipe_.workspace_bytes, std::byte{0xff});
  std::size_t i = 0;
  for (Step& step : recipe_.steps()) {
    if (step.arguments.wants_workspace()) step.arguments.set_workspace(workspace_.data(), ++nonce_);
    const LoadedKernel* const partner = partners_[i++];
    launch_step(step, partner != nullptr ? *partner : kernel, device, nullptr);
  }
  std::vector<std::byte> all;
  for (const Output& output : outputs_) {
    all.insert(all.end(), output.tensor->bytes.begin(), output.tensor->bytes.end());
  }
  return all;
}

double KernelCase::error(const Output& output, const std::byte* bytes) const {
  const DType dtype = output.tensor->view.dtype;
  const auto size = static_cast<std::size_t>(size_of(dtype));
  double worst = 0, squares = 0;
  int computed = 0;  // rows without any key are 0
  for (double value : output.expected) squares += value * value, computed += value != 0;
  const double typical = computed > 0 ? std::sqrt(squares / computed) : 1;
  for (std::size_t i = 0; i < output.expected.size(); ++i) {
    const double value = value_at(bytes + i * size, dtype), expected = output.expected[i];
    const double allowed = output.tolerance * std::max(typical, std::abs(expected));
    const double error = std::abs(value - expected) / allowed;
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

double KernelCase::error(const std::vector<std::byte>& bytes) const {
  double worst = 0;
  const std::byte* at = bytes.data();
  for (const Output& output : outputs_) {
    worst = std::max(worst, error(output, at));
    at += output.tensor->bytes.size();
  }
  return worst;
}

}  // namespace kiln::testing
