#include "jit/quantize/problem.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "jit/op/checks.h"
#include "templates/quantize/params.h"

namespace kiln {
namespace {

constexpr std::int64_t kMostQuantized = 1 << 20;
constexpr int kMostVector = 8, kQuantizeBytes = 16;

// [rows, columns], [columns] or [runs, rows, columns], as runs of rows.
QuantizeRows rows_of(const TensorView& tensor) {
  return {tensor.rank == 3 ? dimension_stride(tensor, 0) : 0,
          tensor.rank >= 2 ? dimension_stride(tensor, tensor.rank - 2) : 0};
}

int inner_rows(const TensorView& x) {
  return x.rank == 1 ? 1 : static_cast<int>(x.shape[x.rank - 2]);
}

int group_of(std::int64_t columns, const QuantizeOptions& options) {
  return options.group == 0 || options.group > columns ? static_cast<int>(columns) : options.group;
}

std::int64_t groups_of(std::int64_t columns, int group) {
  return columns == 0 ? 0 : (columns + group - 1) / group;
}

void check_options(const QuantizeOptions& options, const QuantizeProblem& problem) {
  if (options.group < 0) {
    throw_value({problem.op, "group"},
                "must be the number of columns that share a scale, or None (0 in C++) for all of a "
                "row, got " +
                    std::to_string(options.group));
  }
  check_option({problem.op, "activation"}, options.activation, Activation::geglu_tanh,
               "kiln::Activation");
  if (options.activation != Activation::none && !is_gated(options.activation)) {
    throw_value({problem.op, "activation"},
                "must be " + choices_text(std::span(kGateActivationNames).subspan(1)) +
                    ": gates are in the first half of x");
  }
}

// Returns the columns of out.
std::int64_t check_x(const TensorView& x, const QuantizeOptions& options) {
  const Subject subject{"quantize", "x"};
  check_view(subject, x);
  if (x.rank < 1 || x.rank > 3) {
    throw_value(subject, "must have one to three dimensions, the last of which are columns, got " +
                             shape_text(x));
  }
  const std::int64_t columns = x.shape[x.rank - 1];
  if (!is_gated(options.activation)) return columns;
  if (columns % 2 != 0) {
    throw_value(subject, "must have an even number of columns, half of which are gates, got " +
                             shape_text(x));
  }
  return columns / 2;
}

void check_sizes(const TensorView& x, std::int64_t columns, const QuantizeOptions& options,
                 QuantizeProblem& problem) {
  std::int64_t rows = 1;
  bool too_many = columns > kMostQuantized;
  for (int i = 0; i < x.rank - 1; ++i) {
    too_many = __builtin_mul_overflow(rows, x.shape[i], &rows) || too_many;
  }
  std::int64_t all = 0;
  problem.group = too_many ? 1 : group_of(columns, options);
  const std::int64_t groups = groups_of(columns, problem.group);
  too_many = __builtin_mul_overflow(rows, std::max<std::int64_t>(groups, 1), &all) || too_many;
  if (too_many || all > std::numeric_limits<std::int32_t>::max()) {
    throw_value({problem.op, "x"},
                "must have at most 2^20 columns to quantise and 2^31 - 1 groups of them, got " +
                    shape_text(x) + "; split the call");
  }
  problem.rows = static_cast<int>(rows), problem.columns = static_cast<int>(columns);
  problem.groups = static_cast<int>(groups);
}

// `last`: the size of the last dimension; the others are x's.
void check_like_x(const char* name, const TensorView& tensor, const TensorView& x, int last,
                  const QuantizeProblem& problem) {
  const Subject subject{problem.op, name};
  check_tensor(subject, tensor, problem.device_ordinal);
  TensorView expected = x;
  expected.shape[x.rank - 1] = last;
  bool same = tensor.rank == x.rank;
  for (int i = 0; same && i < x.rank; ++i) same = tensor.shape[i] == expected.shape[i];
  if (!same) {
    throw_value(subject, "must have shape " + shape_text(expected) + ", got " + shape_text(tensor));
  }
  check_data(subject, tensor, problem.may_be_null);
  check_written(subject, tensor);
}

void check_counts(const TensorView& counts, const TensorView& x, const QuantizeProblem& problem) {
  if (!counts.given()) return;
  const Subject subject{problem.op, "counts"};
  if (x.rank != 3) {
    throw_value(subject, "count rows of x [experts, capacity, columns], got x " + shape_text(x));
  }
  check_tensor(subject, counts, problem.device_ordinal);
  check_dtype(subject, counts, DType::i32, "");
  check_shape(subject, counts, {x.shape[0]});
  check_data(subject, counts, problem.may_be_null);
}

// Whether `vector` elements at a time may be read or written of the tensor's rows.
bool admits(const TensorView& tensor, int vector) {
  return rows_admit(tensor, std::min(vector * size_of(tensor.dtype), kQuantizeBytes));
}

int vector_of(const TensorView& x, const TensorView& out, const QuantizeProblem& problem) {
  int vector = kMostVector;
  const auto fits = [&] {
    const bool splits = problem.groups > 1 && problem.group % vector != 0;
    return !splits && problem.columns % vector == 0 && admits(x, vector) && admits(out, vector);
  };
  while (vector > 1 && !fits()) vector /= 2;
  return vector;
}

// The order is Plan::launch's.
void set_arguments(const TensorView& x, const TensorView& out, const TensorView& scale,
                   const QuantizeOptions& options, QuantizeProblem& problem) {
  QuantizeParams p{};
  p.x = x.data, p.counts = static_cast<const int*>(options.counts.data);
  p.out = out.data, p.scale = scale.data;
  p.x_rows = rows_of(x), p.out_rows = rows_of(out), p.scale_rows = rows_of(scale);
  p.scale_groups = dimension_stride(scale, scale.rank - 1);
  if (options.counts.given()) p.counts_stride = dimension_stride(options.counts, 0);
  p.rows = problem.rows, p.inner_rows = std::max(inner_rows(x), 1);
  p.columns = problem.columns, p.group = problem.group, p.groups = problem.groups;
  CallArguments& arguments = problem.arguments();
  arguments.set_params(p);
  const auto add = [&](std::size_t offset, const CallTensor& tensor, int vector) {
    if (!tensor.view->given()) return;
    problem.add_tensor(offset, tensor);
    arguments.require_alignment(
        arguments.pointers() - 1,
        static_cast<std::size_t>(std::min(vector * size_of(tensor.view->dtype), kQuantizeBytes)));
  };
  const int vector = problem.traits.vector;
  add(offsetof(QuantizeParams, x), {"x", &x, Use::read}, vector);
  add(offsetof(QuantizeParams, out), {"out", &out, Use::written}, vector);
  add(offsetof(QuantizeParams, scale), {"scale_out", &scale, Use::written}, 1);
  add(offsetof(QuantizeParams, counts), {"counts", &options.counts, Use::read}, 1);
}

}  // namespace

void check_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                    const QuantizeOptions& options, QuantizeProblem& problem) {
  const Subject of_x{problem.op, "x"}, of_out{problem.op, "out"};
  check_options(options, problem);
  problem.device_ordinal = check_tensor(of_x, x, -1);
  check_float(of_x, x);
  check_sizes(x, check_x(x, options), options, problem);
  check_last_stride(of_x, x);
  check_data(of_x, x, problem.may_be_null);
  check_like_x("out", out, x, problem.columns, problem);
  if (!is_quantized(out.dtype)) {
    throw_type(of_out,
               std::string("must be float8_e4m3fn, float8_e5m2 or int8, got ") + name(out.dtype));
  }
  check_last_stride(of_out, out);
  check_like_x("scale_out", scale, x, problem.groups, problem);
  const bool bytes = scale.dtype == DType::f8_e8m0;
  if (!bytes) check_dtype({problem.op, "scale_out"}, scale, DType::f32, " or float8_e8m0fnu");
  check_counts(options.counts, x, problem);
  QuantizeTraits& traits = problem.traits;
  traits.input = x.dtype, traits.output = out.dtype;
  traits.activation = options.activation;
  traits.power_of_two = options.scale_power_of_two || bytes;
  traits.byte_scales = bytes;
  traits.counts = options.counts.given();
  traits.vector = static_cast<std::uint16_t>(vector_of(x, out, problem));
  set_arguments(x, out, scale, options, problem);
  check_overlaps(problem);
}

namespace {

// Contiguous, with `last` in the place of x's columns.
TensorView like_x(const TensorView& x, DType dtype, std::int64_t last) {
  TensorView made = x;
  made.dtype = dtype;
  made.shape[x.rank - 1] = last;
  return result_like(made);
}

}  // namespace

TensorView quantize_output(const TensorView& x, DType out_dtype, const QuantizeOptions& options) {
  return like_x(x, out_dtype == DType::none ? DType::f8_e4m3 : out_dtype, check_x(x, options));
}

TensorView quantize_scale(const TensorView& x, const QuantizeOptions& options) {
  const QuantizeProblem problem;
  check_options(options, problem);
  const std::int64_t columns = check_x(x, options);
  const std::int64_t group = options.group == 0 ? columns : options.group;
  return like_x(x, DType::f32, columns == 0 ? 0 : (columns + group - 1) / group);
}

}  // namespace kiln
