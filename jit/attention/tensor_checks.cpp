#include "jit/attention/tensor_checks.h"

#include <cmath>

#include "jit/attention/builtin_variants.h"
#include "jit/attention/variant_arguments.h"

namespace kiln {

void refuse_head_dim(Subject subject, std::int64_t dim) {
  throw_value(subject, "must have a head dim that is a multiple of 8 up to 256, or 512, got " +
                           std::to_string(dim));
}

void refuse_head_dims(Subject subject, std::int64_t dim, std::int64_t dim_v) {
  throw_value(subject, "must have q's head dim where one of them is beyond 256, got " +
                           std::to_string(dim_v) + " for " + std::to_string(dim) +
                           "; pad the narrower one with zeros");
}

void refuse_length(Subject subject, std::int64_t size, const char* what) {
  throw_value(subject, std::string("has ") + std::to_string(size) + " " + what +
                           "; at most 2^30 - 1 are supported: split the call");
}

void refuse_heads(Subject subject, const char* k, std::int64_t heads, std::int64_t heads_kv) {
  throw_value(subject, std::string("must have a multiple of the heads of ") + k + ", got " +
                           std::to_string(heads) + " heads for " + std::to_string(heads_kv));
}

void check_indices(const char* name, const TensorView& t, std::initializer_list<std::int64_t> shape,
                   const AttentionProblem& problem) {
  if (!t.given()) return;
  const Subject subject{problem.names.op, name};
  check_tensor(subject, t, problem.device_ordinal);
  check_dtype(subject, t, DType::i32, "");
  if (shape.size() != 0) check_shape(subject, t, shape);
  check_last_stride(subject, t);
  check_data(subject, t, problem.may_be_null);
}

void check_lse(const TensorView& lse, std::initializer_list<std::int64_t> shape,
               const AttentionProblem& problem) {
  const Subject subject{problem.names.op, "lse"};
  check_tensor(subject, lse, problem.device_ordinal);
  check_dtype(subject, lse, DType::f32, "");
  check_shape(subject, lse, shape);
  check_last_stride(subject, lse);
  check_data(subject, lse, problem.may_be_null);
  check_written(subject, lse);
}

void check_layout(AttentionLayout layout, const char* op) {
  if (layout == AttentionLayout::bshd || layout == AttentionLayout::bhsd) return;
  throw_value({op, "layout"},
              "must be AttentionLayout::bshd (0) or AttentionLayout::bhsd (1), got " +
                  std::to_string(static_cast<int>(layout)));
}

const char* layout_text(AttentionLayout layout) {
  return layout == AttentionLayout::bshd ? "[batch, length, heads, head_dim]"
                                         : "[batch, heads, length, head_dim]";
}

float checked_scale(Subject subject, std::optional<float> given, std::int64_t head_dim) {
  const float scale = given ? *given : 1.0f / std::sqrt(static_cast<float>(head_dim));
  if (!std::isfinite(scale)) {
    throw_value(subject, "must be a finite number, got " + number_text(scale));
  }
  return scale;
}

namespace {

int vector_bytes_of_out(const TensorView& out) {
  return size_of(out.dtype) == 1 ? kQuantizedOutputBytes : kAttentionVectorBytes;
}

}  // namespace

bool have_vectors(const TensorView& q, const TensorView& k, const TensorView& v,
                  const TensorView& out) {
  return has_vectors(q) && has_vectors(k) && has_vectors(v) &&
         has_vectors(out, vector_bytes_of_out(out));
}

void settle_alignment(const TensorView& q, const TensorView& k, const TensorView& v,
                      const TensorView& out, AttentionProblem& problem) {
  AttentionTraits& traits = problem.traits;
  traits.aligned = have_vectors(q, k, v, out);
  if (!traits.aligned || problem.makes_plan) return;
  for (std::size_t i = 0; i < 4; ++i) {
    problem.arguments().require_alignment(
        i, i == kOutNumber ? vector_bytes_of_out(out) : kAttentionVectorBytes);
  }
}

void add_variants(const AttentionOptions& options, AttentionProblem& problem) {
  add_builtin_variants(options, problem);
  if (!options.variant) return;
  const Variant& variant = options.variant->variant();
  problem.texts.variant = &variant;
  problem.traits.variant = variant.digest();
  add_variant_arguments(*options.variant, problem);
  add_reach(*options.variant, problem);
}

}  // namespace kiln
