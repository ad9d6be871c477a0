#include "jit/norm/problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>

#include "jit/op/checks.h"
#include "templates/norm/params.h"

namespace kiln {
namespace {

constexpr std::int64_t kMaxRows = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxColumns = 65536;
constexpr int kVectorBytes = 16;

// A tensor whose rows are normed, read or written: what messages call it, and where NormParams has
// its pointer and its strides.
struct Rows {
  const char* name;
  const TensorView* tensor;
  Use use;
  std::size_t pointer, strides;
};

// x, residual, residual_out and out have one shape and a unit last stride.
void check_rows(const Rows& rows, const TensorView& x, NormProblem& problem) {
  const Subject subject{problem.op, rows.name};
  const TensorView& tensor = *rows.tensor;
  check_tensor(subject, tensor, problem.device_ordinal);
  bool same = tensor.rank == x.rank;
  for (int i = 0; same && i < x.rank; ++i) same = tensor.shape[i] == x.shape[i];
  if (!same) {
    throw_value(subject, "must have x's shape " + shape_text(x) + ", got " + shape_text(tensor));
  }
  check_last_stride(subject, tensor);
  check_data(subject, tensor, problem.may_be_null);
  if (rows.use == Use::written) check_written(subject, tensor);
}

// A weight or a bias: one entry for each column.
void check_vector(const char* name, const TensorView& tensor, NormProblem& problem) {
  if (!tensor.given()) return;
  const Subject subject{problem.op, name};
  check_tensor(subject, tensor, problem.device_ordinal);
  check_float(subject, tensor);
  check_shape(subject, tensor, {problem.columns});
  check_last_stride(subject, tensor);
  check_data(subject, tensor, problem.may_be_null);
}

// The dimensions before the last, without those of size 1, as `outer` runs of `inner` rows each
// whose rows are equally far apart.
struct Runs {
  std::int64_t inner = 1;
  std::array<NormRows, 4> strides{};  // of each tensor
};

// The stride between neighbours of dimensions [from, to) of one tensor if they are all equally far
// apart.
std::optional<std::int64_t> one_stride(const TensorView& tensor, int from, int to) {
  std::int64_t stride = 0, size = 1;
  for (int i = to - 1; i >= from; --i) {
    if (tensor.shape[i] == 1) continue;
    if (size != 1 && tensor.strides[i] != stride * size) return std::nullopt;
    if (size == 1) stride = tensor.strides[i];
    size *= tensor.shape[i];
  }
  return stride;
}

std::optional<Runs> runs_at(std::span<const Rows> tensors, int split) {
  const TensorView& x = *tensors[0].tensor;
  Runs runs;
  for (int i = split; i < x.rank - 1; ++i) runs.inner *= x.shape[i];
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto outer = one_stride(*tensors[i].tensor, 0, split);
    const auto inner = one_stride(*tensors[i].tensor, split, x.rank - 1);
    if (!outer || !inner) return std::nullopt;
    runs.strides[i] = {*outer, *inner};
  }
  return runs;
}

Runs runs_of(std::span<const Rows> tensors, const NormProblem& problem) {
  const int leading = tensors[0].tensor->rank - 1;
  if (problem.rows == 0) return {};  // no rows that could lie anywhere
  for (int split = 0; split <= leading; ++split) {
    if (const auto runs = runs_at(tensors, split)) return *runs;
  }
  throw_value({problem.op, "x"},
              "and the tensors like it must have rows that lie in memory as one run, or as runs of "
              "equal length, all alike; call .contiguous() or numpy.ascontiguousarray()");
}

// Whether `vector` elements at a time may be read or written of rows that lie so.
bool admits(const TensorView& tensor, const NormRows& rows, int vector) {
  const int size = size_of(tensor.dtype);
  const int bytes = std::min(vector * size, kVectorBytes);
  return is_aligned(tensor, bytes) && rows.outer * size % bytes == 0 &&
         rows.inner * size % bytes == 0;
}

// The largest vector that all tensors and the number of columns admit.
int vector_of(std::span<const Rows> tensors, const Runs& runs, const TensorView& weight,
              const TensorView& bias, const NormProblem& problem) {
  int vector = kVectorBytes / size_of(problem.traits.input);
  const auto fits = [&] {
    if (problem.columns % vector != 0) return false;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!admits(*tensors[i].tensor, runs.strides[i], vector)) return false;
    }
    return (!weight.given() || admits(weight, {}, vector)) &&
           (!bias.given() || admits(bias, {}, vector));
  };
  while (vector > 1 && !fits()) vector /= 2;
  return vector;
}

float checked_number(const NormProblem& problem, const char* name, float value) {
  if (!std::isfinite(value)) {
    throw_value({problem.op, name}, "must be a finite number, got " + number_text(value));
  }
  return value;
}

void check_options(const NormOptions& options, const NormProblem& problem) {
  if (options.activation > Activation::silu) {
    throw_value({problem.op, "activation"},
                "must be " + choices_text(std::span(kPlainActivationNames).subspan(1)) +
                    ": gated activations are gemm's");
  }
  if (options.residual_out.given() && !options.residual.given()) {
    throw_value({problem.op, "residual_out"}, "is the sum of x and residual: give residual too");
  }
}

void check_sizes(const TensorView& x, NormProblem& problem) {
  const Subject subject{problem.op, "x"};
  if (x.rank == 0) throw_value(subject, "must have at least one dimension");
  problem.columns = 0;
  const std::int64_t columns = x.shape[x.rank - 1];
  std::int64_t rows = 1;
  bool too_many = false;
  for (int i = 0; i < x.rank - 1; ++i) {
    too_many = __builtin_mul_overflow(rows, x.shape[i], &rows) || too_many;
  }
  if (columns > kMaxColumns || rows > kMaxRows || too_many) {
    throw_value(subject, "must have at most 65536 columns and 2^31 - 1 rows, got " + shape_text(x) +
                             "; split the call");
  }
  problem.columns = static_cast<int>(columns);
  problem.rows = static_cast<int>(rows);
}

// The order is Plan::launch's.
void set_arguments(std::span<const Rows> tensors, const Runs& runs, const TensorView& weight,
                   const TensorView& bias, const NormOptions& options, NormProblem& problem) {
  const bool rms = problem.traits.kind == NormKind::rms;
  NormParams p{};
  p.rows = problem.rows, p.columns = problem.columns;
  p.inner_rows = static_cast<int>(std::max<std::int64_t>(runs.inner, 1));
  p.splits = 1;
  p.eps = checked_number(problem, "eps", options.eps.value_or(rms ? 1e-6f : 1e-5f));
  if (p.eps < 0) {
    throw_value({problem.op, "eps"}, "must not be negative, got " + number_text(p.eps));
  }
  p.weight_offset = checked_number(problem, "weight_offset", options.weight_offset);
  p.weight = weight.data, p.bias = bias.data;
  const auto write = [&](std::size_t offset, const auto& value) {
    std::memcpy(reinterpret_cast<char*>(&p) + offset, &value, sizeof value);
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    write(tensors[i].pointer, tensors[i].tensor->data);
    write(tensors[i].strides, runs.strides[i]);
  }
  CallArguments& arguments = problem.arguments();
  arguments.set_params(p);
  const int vector = problem.traits.vector;
  const auto add = [&](std::size_t offset, const CallTensor& tensor) {
    if (!tensor.view->given()) return;
    problem.add_tensor(offset, tensor);
    arguments.require_alignment(
        arguments.pointers() - 1,
        static_cast<std::size_t>(std::min(vector * size_of(tensor.view->dtype), kVectorBytes)));
  };
  const auto add_rows = [&](const Rows& rows) {
    add(rows.pointer, {rows.name, rows.tensor, rows.use});
  };
  add_rows(tensors[0]);
  add(offsetof(NormParams, weight), {"weight", &weight, Use::read});
  add(offsetof(NormParams, bias), {"bias", &bias, Use::read});
  for (const Rows& rows : tensors.subspan(1)) add_rows(rows);
}

}  // namespace

void check_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& out, const NormOptions& options, NormProblem& problem) {
  problem.device_ordinal = check_tensor({problem.op, "x"}, x, -1);
  check_float({problem.op, "x"}, x);
  check_sizes(x, problem);
  check_options(options, problem);
  std::array<Rows, 4> list{};
  std::size_t count = 0;
  list[count++] = {"x", &x, Use::replaceable, offsetof(NormParams, x),
                   offsetof(NormParams, x_rows)};
  list[count++] = {"out", &out, Use::written, offsetof(NormParams, out),
                   offsetof(NormParams, out_rows)};
  if (options.residual.given()) {
    list[count++] = {"residual", &options.residual, Use::replaceable,
                     offsetof(NormParams, residual), offsetof(NormParams, residual_rows)};
  }
  if (options.residual_out.given()) {
    list[count++] = {"residual_out", &options.residual_out, Use::written,
                     offsetof(NormParams, residual_out), offsetof(NormParams, residual_out_rows)};
  }
  const std::span<const Rows> tensors(list.data(), count);
  for (const Rows& rows : tensors.subspan(2)) {
    check_dtype({problem.op, rows.name}, *rows.tensor, x.dtype, " like x");
  }
  for (const Rows& rows : tensors) check_rows(rows, x, problem);
  check_float({problem.op, "out"}, out);
  check_vector("weight", weight, problem);
  check_vector("bias", bias, problem);
  NormTraits& traits = problem.traits;
  traits.input = x.dtype, traits.output = out.dtype;
  traits.weight = weight.dtype, traits.bias = bias.dtype;
  traits.activation = options.activation;
  traits.residual = options.residual.given();
  const Runs runs = runs_of(tensors, problem);
  traits.vector = static_cast<std::uint16_t>(vector_of(tensors, runs, weight, bias, problem));
  set_arguments(tensors, runs, weight, bias, options, problem);
  check_overlaps(problem);
}

TensorView norm_output(const TensorView& x, DType out_dtype) {
  check_view({"norm", "x"}, x);
  TensorView out = x;
  if (out_dtype != DType::none) out.dtype = out_dtype;
  return result_like(out);
}

}  // namespace kiln
