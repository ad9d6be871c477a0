#include "jit/attention/plan.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "jit/attention/context_parallel.h"
#include "jit/attention/family.h"
#include "jit/attention/sequence_tensors.h"
#include "jit/attention/sm90_rows.h"
#include "jit/attention/tensor_checks.h"
#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

// All that shares depend on beside the lengths themselves.
std::uint64_t key_of(const AttentionVarlenParams& p, const Step& step,
                     const AttentionProblem& problem) {
  const auto word = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
  const AttentionTraits& traits = problem.traits;
  std::uint64_t key = problem.plan_seed;
  for (const std::uint64_t one :
       {word(p.call.batch), word(p.call.heads), word(p.call.heads_kv),
        // The bound of lengths, unless a tensor tells them.
        word(p.packed_queries != 0 ? 0 : p.call.len_q), word(p.packed_queries), word(p.least_rows),
        word(p.most_rows), word(p.whole_tiles), word(p.few_ctas), word(p.packed_keys),
        word(p.plan_block_q), word(p.plan_block_kv), word(p.plan_step_keys), word(step.blocks),
        word(p.tile_heads), word(p.tile_queries), word(static_cast<int>(traits.mask)),
        word(traits.spread), word(p.spread.run.by), word(p.spread.round.by), word(p.spread.first),
        traits.variant[0], traits.variant[1]}) {
    key = mix(key, one);
  }
  return key;
}

// The tile for which a launch is planned.
struct PlannedTile {
  int block_q, block_kv, step_keys;
};

// `entries`: of each CTA.
void set_entries(Step& step, const PlannedTile& tile, int entries, AttentionProblem& problem) {
  CallArguments& arguments = step.arguments;
  const auto set = [&](std::size_t offset, int value) { arguments.set_int(offset, value); };
  set(offsetof(AttentionVarlenParams, plan_begin),
      static_cast<int>(problem.plan_words / kAttentionPlanWords));
  set(offsetof(AttentionVarlenParams, plan_block_q), tile.block_q);
  set(offsetof(AttentionVarlenParams, plan_block_kv), tile.block_kv);
  set(offsetof(AttentionVarlenParams, plan_step_keys), tile.step_keys);
  AttentionVarlenParams params;
  std::memcpy(&params, arguments.bytes().data(), sizeof params);
  const std::uint64_t key = key_of(params, step, problem);
  constexpr std::size_t kKey = offsetof(AttentionVarlenParams, plan_key);
  set(kKey, static_cast<int>(key)), set(kKey + 4, static_cast<int>(key >> 32));
  problem.plan_words += std::int64_t{step.blocks} * entries * kAttentionPlanWords;
}

// Whether CTAs of such a launch look at all lengths to find what they share.
bool is_planned_sm90(const Step& step) {
  if (!sm90_config_at(step.spec.row()).splits) return false;
  AttentionVarlenParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  return params.alone.by == 0;
}

bool has_plan(const AttentionProblem& problem) {
  return problem.plan != nullptr || problem.makes_plan;
}

// The key of masks' numbers, and of which tensors tell lengths, or how many keys are skipped: their
// values are in the plan. Those of a Plan may have no address yet.
std::uint64_t seed_of(const AttentionOptions& options, const SequenceTensors& sequences) {
  std::uint64_t seed = mix(1, options.causal ? 1 : 0);
  for (const TensorView* const tensor :
       {&sequences.cu_seqlens_k, &sequences.seqused_k, &sequences.cache_leftpad}) {
    seed = mix(seed, tensor->given() ? 1 : 0);
  }
  seed = mix(seed, static_cast<std::uint64_t>(options.window_left));
  seed = mix(seed, static_cast<std::uint64_t>(options.window_right));
  if (options.variant == nullptr) return seed;
  for (const double value : options.variant->values()) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    seed = mix(seed, bits);
  }
  return seed;
}

// Options of a call as its plan needs them: what happens to a logit or a row decides about tiles
// alone, which set_traits() does.
void strip(AttentionOptions& options) {
  options.softcap = 0;
  options.alibi_slopes = options.sinks = {};
}

void set_traits(const AttentionOptions& options, const ContextParallel& context,
                AttentionProblem& problem) {
  problem.traits.softcap = options.softcap != 0;
  problem.traits.alibi = options.alibi_slopes.given();
  problem.traits.spread = is_spread(context, problem);
}

// Checks what the shape of the result is made of.
void check_inputs(const TensorView& q, const TensorView& v, int rank, const char* layout) {
  check_view({kPlanNames.op, kPlanNames.q}, q);
  check_rank({kPlanNames.op, kPlanNames.q}, q, rank, layout);
  check_view({kPlanNames.op, kPlanNames.v}, v);
  if (v.rank != 3 && v.rank != 4) {
    check_rank({kPlanNames.op, kPlanNames.v}, v, 4, "[batch or pages, length, heads, head_dim]");
  }
}

// Contiguous results in memory that nobody writes.
TensorView result_of(const TensorView& q, const TensorView& v, bool quantized) {
  TensorView out = q;
  out.dtype = quantized ? DType::f8_e4m3 : output_dtype(q.dtype);
  out.shape[out.rank - 1] = v.shape[v.rank - 1];
  return result_like(out);
}

// The same tensor, wherever its memory is.
TensorView anywhere(TensorView tensor) {
  tensor.data = nullptr;
  return tensor;
}

void begin(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& plan,
           bool quantized, PlanProblem& problem) {
  problem.q = anywhere(q), problem.k = anywhere(k), problem.v = anywhere(v);
  problem.out = result_of(q, v, quantized);
  problem.plan = plan;
  problem.attention.makes_plan = true;
  problem.attention.may_be_null = true;  // q, k and v, which nobody reads
}

// Lengths are read, whatever else may be null.
void finish(const AttentionOptions& options, const ContextParallel& context, PlanProblem& problem) {
  set_traits(options, context, problem.attention);
  problem.device_ordinal = problem.attention.device_ordinal;
  problem.texts = problem.attention.texts;
  problem.tensors = problem.attention.tensors;
  for (const CallTensor& tensor : problem.tensors.all()) {
    if (tensor.view->dtype != DType::i32) continue;
    check_data({problem.op, tensor.name}, *tensor.view, problem.may_be_null);
  }
}

}  // namespace

void check_plan(const TensorView& q, const TensorView& k, const TensorView& v,
                const TensorView& plan, const VarlenOptions& options, PlanProblem& problem) {
  check_inputs(q, v, 3, "[tokens, heads, head_dim]");
  begin(q, k, v, plan, options.out_scale.given(), problem);
  problem.varlen = options;
  problem.varlen.plan = problem.plan;
  strip(problem.varlen.attention);
  check_varlen(problem.q, problem.k, problem.v, problem.out, {}, problem.varlen, problem.attention);
  finish(options.attention, options.context, problem);
}

void check_plan(const TensorView& q, const TensorView& k, const TensorView& v,
                const TensorView& plan, const KvCacheOptions& options, PlanProblem& problem) {
  check_inputs(q, v, 4, "[batch, len_q, heads, head_dim]");
  begin(q, k, v, plan, options.out_scale.given(), problem);
  problem.kvcache = options;
  problem.kvcache.plan = problem.plan;
  strip(problem.kvcache.attention);
  check_kvcache(problem.q, problem.k, problem.v, problem.out, {}, problem.kvcache,
                problem.attention);
  finish(options.attention, options.context, problem);
}

bool are_as_planned(const TensorView& q, const TensorView& k, const TensorView& v,
                    const TensorView& out) {
  return have_vectors(q, k, v, out) ||
         !(has_vectors(anywhere(q)) && has_vectors(anywhere(k)) && has_vectors(anywhere(v)));
}

void add_plan(const TensorView& plan, const AttentionOptions& options,
              const SequenceTensors& sequences, AttentionProblem& problem) {
  if (!plan.given() && !problem.makes_plan) [[likely]]
    return;
  problem.plan_seed = seed_of(options, sequences);
  if (!plan.given()) return;
  const Subject subject{problem.names.op, "plan"};
  check_tensor(subject, plan, problem.device_ordinal);
  check_dtype(subject, plan, DType::i32, "");
  check_rank(subject, plan, 1, "[words]");
  check_last_stride(subject, plan);
  check_data(subject, plan, problem.may_be_null);
  if (!is_aligned(plan, 16)) throw_value(subject, "must begin at a multiple of 16 bytes");
  if (sequences.new_keys != 0) {
    throw_value(subject, "must not be given with k_new: append with jit.append_kv before the call");
  }
  if (problem.ignores_plan) return;
  problem.plan = &plan;
  problem.add_tensor(offsetof(AttentionVarlenParams, plan),
                     {"plan", &plan, problem.makes_plan ? Use::written : Use::read}, 4);
}

void set_plan(Step& step, const AttentionConfig& config, AttentionProblem& problem) {
  if (!has_plan(problem)) return;
  set_entries(step, {config.block_q, config.block_kv, config.block_kv * config.teams}, 1, problem);
}

void set_plan_sm90(Step& step, AttentionProblem& problem) {
  if (!has_plan(problem) || !is_planned_sm90(step)) return;
  const AttentionSm90Config& config = sm90_config_at(step.spec.row());
  set_entries(step, {config.block_q, config.block_kv, config.block_kv}, kAttentionPlannedPieces,
              problem);
}

void check_plan_length(const AttentionProblem& problem) {
  if (problem.plan == nullptr || problem.plan->shape[0] >= problem.plan_words) [[likely]]
    return;
  throw_value({problem.names.op, "plan"},
              "must have " + std::to_string(problem.plan_words) + " words for this call, got " +
                  std::to_string(problem.plan->shape[0]) +
                  "; make it by jit.plan_attention with the same arguments");
}

std::int64_t most_words(const PlanProblem& problem) {
  const AttentionProblem& call = problem.attention;
  // Two CTAs on each multiprocessor, or a CTA for each tile, which has 16 rows or more. Launches of
  // sm_90a have fewer than 256 CTAs of kAttentionPlannedPieces entries where they are planned.
  const std::int64_t most_ctas = std::max<std::int64_t>(
      1024, attention_varlen_tiles(call.batch, call.tokens, call.heads, call.heads_kv, 16));
  return 2 * most_ctas * kAttentionPlanWords;  // of two launches at most
}

void resolve(PlanProblem& problem, const runtime::Device& device, bool may_split) {
  resolve(problem.attention, device, may_split);
  bool is_first = true;
  for (const Step& step : problem.attention.recipe.steps()) {
    const bool is_sm90 = &step.spec.kernel() == &kFlashAttentionSm90;
    if (is_sm90 ? !is_planned_sm90(step) : &step.spec.kernel() != &kFlashAttentionVarlen) continue;
    Step& planned = is_first ? problem.recipe.first() : problem.recipe.add();
    is_first = false;
    planned = step;
    planned.arguments.want_workspace(0, 0, 0);
    planned.programmatic = &planned != &problem.recipe.first() && may_overlap(step.spec.arch());
    planned.spec =
        Specialization(is_sm90 ? kAttentionSharesPlanner : kAttentionPlanner, step.spec.arch(), 0,
                       planner_traits(step.spec.traits_as<AttentionTraits>()));
  }
}

double flops_of(const PlanProblem& problem) { return 1000.0 * problem.attention.batch; }

}  // namespace kiln
