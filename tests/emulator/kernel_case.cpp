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
#include "tests/emulator/earlier_launch.h"
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
  // Two heads' rows in the tiles of splits: the first is full, and the last has so few that two
  // splits of them have room in shared memory, where the join then reads them.
  problem.len_q = config.splits ? config.block_q / 2 + 3 : config.block_q + 9;
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
  else if (family == &kCopyKeys)
    make_copy_keys(size);
  else if (family == &kBoundElements)
    make_bound_elements(size);
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
  const auto steps = recipe_.steps();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    if (step.arguments.wants_workspace()) step.arguments.set_workspace(workspace_.data(), ++nonce_);
    const LoadedKernel* const partner = partners_[i];
    if (i == 0 && step.programmatic) {
      const auto spans = step.arguments.spans();
      std::vector<runtime::MemorySpan> earlier(spans.begin(), spans.end());
      if (weights_ahead_) earlier.erase(earlier.begin() + 1);  // b
      launch_earlier(device, earlier);
    }
    launch_step(step, partner != nullptr ? *partner : kernel, device, nullptr,
                i + 1 < steps.size() ? &steps[i + 1] : nullptr);
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
