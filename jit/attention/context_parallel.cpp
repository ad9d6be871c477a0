#include "jit/attention/context_parallel.h"

#include "jit/attention/tensor_checks.h"
#include "jit/attention/variant_arguments.h"
#include "jit/op/checks.h"

namespace kiln {
namespace {

// Bounds a round of runs, one of each device, so that no position overflows.
constexpr std::int64_t kMostRound = std::int64_t{1} << 30;

void check_numbers(const ContextParallel& context, const char* op) {
  if (context.world < 1 || context.world > kMostRound) {
    throw_value({op, "cp_world"}, "must be 1 to 2^30, got " + std::to_string(context.world));
  }
  if (context.rank < 0 || context.rank >= context.world) {
    throw_value({op, "cp_rank"}, "must be at least 0 and below cp_world, which is " +
                                     std::to_string(context.world) + ", got " +
                                     std::to_string(context.rank));
  }
  if (context.interleave < 1 || context.interleave > kMostRound / context.world) {
    throw_value({op, "cp_interleave"}, "must be at least 1 and at most 2^30 / cp_world, got " +
                                           std::to_string(context.interleave));
  }
}

void check_variant(const AttentionOptions& options, const char* op) {
  if (options.variant == nullptr) return;
  const Variant& variant = options.variant->variant();
  if (const VariantTensor* const tensor = tensor_indexed_by(variant, "kv")) {
    throw_value({op, "variant"}, "has tensor '" + tensor->name +
                                     "', which is indexed by kv; with cp_world above 1 the "
                                     "length of a sequence is known on the device alone, so "
                                     "compute with kv instead");
  }
}

}  // namespace

void check_context(const ContextParallel& context, const SequenceTensors& sequences,
                   const AttentionOptions& options, const AttentionProblem& problem) {
  const char* const op = problem.names.op;
  check_numbers(context, op);
  check_indices("cp_seqused_k_total", context.seqused_k_total, {problem.batch}, problem);
  if (context.world == 1) return;
  if (!context.seqused_k_total.given()) {
    throw_value({op, "cp_seqused_k_total"},
                "is needed where cp_world is above 1: how many keys each sequence has on all "
                "devices");
  }
  if (options.sinks.given()) {
    throw_value({op, "sinks"},
                "must not be given with cp_world above 1, because every device would count them; "
                "give them to jit.merge_states");
  }
  if (sequences.cache_leftpad.given()) {
    throw_value({op, "cache_leftpad"},
                "must not be given with cp_world above 1: move the sequences to the beginning of "
                "their entries");
  }
  if (sequences.new_keys != 0) {
    throw_value({op, "k_new"},
                "must not be given with cp_world above 1, because one device alone has a new key; "
                "append it there with jit.append_kv before the call");
  }
  check_variant(options, op);
}

void set_context(const ContextParallel& context, AttentionVarlenParams& p) {
  const std::int64_t run = context.interleave;
  p.spread.totals = static_cast<const int*>(context.seqused_k_total.data);
  p.spread.run = divisor_of(run);
  p.spread.round = divisor_of(run * context.world);
  p.spread.first = static_cast<int>(run * context.rank);
}

bool sees_positions(const AttentionTraits& traits) {
  return traits.mask != Mask::none || traits.alibi || traits.has_variant();
}

bool is_spread(const ContextParallel& context, const AttentionProblem& problem) {
  const AttentionTraits& traits = problem.traits;
  if (context.world == 1 || !sees_positions(traits)) return false;
  // The last position of a sequence sees all keys on all devices.
  const bool sees_all =
      problem.len_q <= 1 && traits.mask == Mask::causal && !traits.alibi && !traits.has_variant();
  return !sees_all;
}

}  // namespace kiln
