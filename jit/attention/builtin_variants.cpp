#include "jit/attention/builtin_variants.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "jit/op/checks.h"

namespace kiln {
namespace {

constexpr std::int64_t kOpenWindow = std::int64_t{1} << 30;

void add_number(const BuiltinVariant& variant, float value, AttentionProblem& problem) {
  if (!std::isfinite(value) || value < 0.0f) {
    throw_value({problem.names.op, variant.field.name},
                "must be a finite number >= 0 (0 = none), got " + number_text(value));
  }
  if (value > variant.most) {
    throw_value({problem.names.op, variant.field.name},
                "must be at most " + number_text(variant.most) +
                    ", beyond which its error would show in the result; got " + number_text(value) +
                    "; leave it out where logits are so large, or cap them in a jit.Variant");
  }
  set_byte(variant, problem.traits, value != 0.0f);
  if (value != 0.0f) problem.arguments().add_float(value);
}

// The table is a constant, so that no call goes through a pointer.
template <std::size_t I = 0>
void add_rows(Hook hook, const AttentionOptions& options, AttentionProblem& problem) {
  if constexpr (I < std::size(kBuiltinVariants)) {
    constexpr const BuiltinVariant& variant = kBuiltinVariants[I];
    if (variant.hook == hook) {
      if constexpr (variant.number != nullptr) {
        add_number(variant, options.*variant.number, problem);
      } else {
        variant.add(options, problem);
      }
    }
    add_rows<I + 1>(hook, options, problem);
  }
}

// Whether neighbouring keys may be read by one load: templates/attention/builtin_variants.cuh.
bool reads_pairs(const TensorView& mask, std::int64_t len_kv) {
  const auto bytes = static_cast<std::uintptr_t>(2 * size_of(mask.dtype));
  if (mask.shape[3] != len_kv || len_kv % 2 != 0 || mask.strides[3] != 1) return false;
  if (reinterpret_cast<std::uintptr_t>(mask.data) % bytes != 0) return false;
  for (int i = 0; i < 3; ++i) {
    if (mask.shape[i] != 1 && mask.strides[i] % 2 != 0) return false;
  }
  return true;
}

void add_attn_mask(const TensorView& mask, AttentionProblem& problem) {
  problem.traits.attn_mask = mask.dtype;
  if (!mask.given()) return;
  const Subject subject{problem.names.op, "attn_mask"};
  check_tensor(subject, mask, problem.device_ordinal);
  if (mask.dtype != DType::boolean && mask.dtype != DType::f32 && mask.dtype != problem.traits.q) {
    throw_type(subject, std::string("must be bool, float32 or ") + name(problem.traits.q) +
                            " like " + problem.names.q + ", got " + name(mask.dtype));
  }
  check_rank(subject, mask, 4, "[batch, heads, len_q, len_kv]");
  check_data(subject, mask, problem.may_be_null);
  CallArguments& arguments = problem.arguments();
  problem.traits.mask_pairs = reads_pairs(mask, problem.len_kv);
  problem.add_tensor(arguments.size(), {subject.name, &mask, Use::read},
                     problem.traits.mask_pairs ? 2 : 1);
  const std::int64_t extents[] = {problem.batch, problem.heads, problem.len_q, problem.len_kv};
  for (int i = 0; i < 4; ++i) {
    if (mask.shape[i] != extents[i] && mask.shape[i] != 1) {
      throw_value(subject, "must have shape [" + std::to_string(extents[0]) + ", " +
                               std::to_string(extents[1]) + ", " + std::to_string(extents[2]) +
                               ", " + std::to_string(extents[3]) + "], each or 1, got " +
                               shape_text(mask));
    }
    const bool varies = mask.shape[i] != 1;
    arguments.add_word(varies ? static_cast<std::uint64_t>(mask.strides[i]) : 0);
  }
}

// Keys visible before and after the diagonal, as words; `keys`: the most that a query sees.
void add_window(std::int64_t left, std::int64_t right, std::int64_t keys,
                AttentionProblem& problem) {
  problem.traits.mask = Mask::window;
  problem.arguments().add_word(static_cast<std::uint64_t>(left));
  problem.arguments().add_word(static_cast<std::uint64_t>(right));
  problem.keys = static_cast<int>(std::min<std::int64_t>(problem.len_kv, keys));
}

// Keys up to the query's own row. Where the lengths differ that is a diagonal which lies
// len_kv - len_q keys before the one that windows count from.
void add_top_left(const AttentionOptions& options, AttentionProblem& problem) {
  if (!options.causal || options.window_left != -1 || options.window_right != -1) {
    throw_value({problem.names.op, "top_left"}, "needs causal and excludes a window");
  }
  if (problem.len_q == problem.len_kv) {
    problem.traits.mask = Mask::causal;
  } else {
    add_window(kOpenWindow, problem.len_q - problem.len_kv, problem.len_q, problem);
  }
}

// The window of sequences whose flags are not set; the others have none behind the diagonal.
void add_causal_each(std::int64_t left, std::int64_t right, AttentionProblem& problem) {
  const auto open = [](std::int64_t side) {
    return static_cast<std::uint64_t>(side < 0 ? kOpenWindow : std::min(side, kOpenWindow));
  };
  problem.traits.mask = Mask::causal_each;
  CallArguments& arguments = problem.arguments();
  problem.add_tensor(arguments.size(), {"causal", problem.causal_each, Use::read});
  arguments.add_word(open(left));
  arguments.add_word(open(right));
}

// The words of the queries, with the strides of sequences and of queries.
void add_tree_mask(AttentionProblem& problem) {
  const TensorView& words = *problem.tree_mask;
  problem.traits.mask = Mask::tree;
  CallArguments& arguments = problem.arguments();
  problem.add_tensor(arguments.size(), {"tree_mask", &words, Use::read});
  arguments.add_word(words.rank == 2 ? static_cast<std::uint64_t>(words.strides[0]) : 0);
  arguments.add_word(static_cast<std::uint64_t>(words.strides[words.rank - 1]));
}

void add_mask(const AttentionOptions& options, AttentionProblem& problem) {
  std::int64_t left = options.window_left, right = options.window_right;
  if (left < -1 || right < -1) {
    throw_value({problem.names.op, "window"},
                "must be (left, right) with each >= -1 (-1 = open), got (" + std::to_string(left) +
                    ", " + std::to_string(right) + ")");
  }
  if (problem.tree_mask != nullptr) return add_tree_mask(problem);
  if (options.causal) right = 0;
  if (problem.causal_each != nullptr) return add_causal_each(left, right, problem);
  if (left < 0 && right < 0) {
    problem.traits.mask = Mask::none;
  } else if (left < 0 && right == 0) {
    problem.traits.mask = Mask::causal;
  } else {
    left = left < 0 ? kOpenWindow : std::min(left, kOpenWindow);
    right = right < 0 ? kOpenWindow : std::min(right, kOpenWindow);
    // Behind the last query's own key there is none.
    add_window(left, right, 1 + left + std::min<std::int64_t>(right, problem.len_q - 1), problem);
  }
}

}  // namespace

void add_alibi(const AttentionOptions& options, AttentionProblem& problem) {
  const TensorView& slopes = options.alibi_slopes;
  problem.traits.alibi = slopes.given();
  if (!slopes.given()) return;
  const Subject subject{problem.names.op, "alibi_slopes"};
  check_tensor(subject, slopes, problem.device_ordinal);
  check_dtype(subject, slopes, DType::f32, "");
  check_data(subject, slopes, problem.may_be_null);
  const bool per_batch = slopes.rank == 2;
  if (per_batch) {
    check_shape(subject, slopes, {problem.batch, problem.heads});
  } else {
    check_shape(subject, slopes, {problem.heads});
  }
  CallArguments& arguments = problem.arguments();
  problem.add_tensor(arguments.size(), {subject.name, &slopes, Use::read});
  arguments.add_word(per_batch ? static_cast<std::uint64_t>(slopes.strides[0]) : 0);
  arguments.add_word(static_cast<std::uint64_t>(slopes.strides[slopes.rank - 1]));
}

void add_sinks(const AttentionOptions& options, AttentionProblem& problem) {
  const TensorView& sinks = options.sinks;
  problem.traits.sinks = sinks.dtype;
  if (!sinks.given()) return;
  const Subject subject{problem.names.op, "sinks"};
  check_tensor(subject, sinks, problem.device_ordinal);
  if (!is_float(sinks.dtype)) {
    throw_type(subject,
               std::string("must be float32, float16 or bfloat16, got ") + name(sinks.dtype));
  }
  check_shape(subject, sinks, {problem.heads});
  check_data(subject, sinks, problem.may_be_null);
  problem.add_tensor(problem.arguments().size(), {subject.name, &sinks, Use::read});
  problem.arguments().add_word(static_cast<std::uint64_t>(sinks.strides[0]));
}

void add_builtin_variants(const AttentionOptions& options, AttentionProblem& problem) {
  add_rows(Hook::logits, options, problem);
  add_attn_mask(options.attn_mask, problem);
  if (options.top_left) {
    add_top_left(options, problem);
  } else {
    add_mask(options, problem);
  }
  add_rows(Hook::row_finish, options, problem);
}

}  // namespace kiln
