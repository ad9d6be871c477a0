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
  bool written;
  std::size_t pointer, strides;
};

void check_float(Subject subject, const TensorView& tensor) {
  if (is_float(tensor.dtype)) return;
  throw_type(subject,
             std::string("must be float16, bfloat16 or float32, got ") + name(tensor.dtype));
}

// x, residual, residual_out and out have one shape and a unit last stride.
void check_rows(const Rows& rows, const TensorView& x, NormProblem& problem) {
  const Subject subject{problem.op, rows.name};
  const TensorView& tensor = *rows.tensor;
  check_device(subject, tensor, problem.device_ordinal);
  bool same = tensor.rank == x.rank;
  for (int i = 0; same && i < x.rank; ++i) same = tensor.shape[i] == x.shape[i];
  if (!same) {
    throw_value(subject, "must have x's shape " + shape_text(x) + ", got " + shape_text(tensor));
  }
  check_last_stride(subject, tensor);
  check_data(subject, tensor, problem.may_be_null);
  if (rows.written) check_written(subject, tensor);
}

// A weight or a bias: one entry for each column.
void check_vector(const char* name, const TensorView& tensor, NormProblem& problem) {
  if (!tensor.given()) return;
  const Subject subject{problem.op, name};
  check_device(subject, tensor, problem.device_ordinal);
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
  for (int split = 0; split <= leading; ++split) {
    if (const auto runs = runs_at(tensors, split)) return *runs;
  }
  throw_value({problem.op, "x"},
              "and the tensors like it must have rows that lie in memory as one run, or as runs of "
              "equal length, all alike; call .contiguous()");
}

// Whether two tensors that are addressed alike share an element. Their rows lie `apart` elements
// from each other's; with other strides only a common first element is certain.
bool shares_elements(const TensorView& a, const NormRows& rows_a, const TensorView& b,
                     const NormRows& rows_b, const NormProblem& problem) {
  const auto address_a = reinterpret_cast<std::intptr_t>(a.data);
  const auto address_b = reinterpret_cast<std::intptr_t>(b.data);
  if (address_a == address_b) return true;
  const runtime::MemorySpan span_a = CallArguments::span_of(a, false);
  const runtime::MemorySpan span_b = CallArguments::span_of(b, false);
  const bool apart = span_a.address + span_a.bytes <= span_b.address ||
                     span_b.address + span_b.bytes <= span_a.address;
  const bool alike = size_of(a.dtype) == size_of(b.dtype) && rows_a.inner == rows_b.inner &&
                     rows_a.outer == rows_b.outer;
  if (apart || !alike) return false;
  const std::int64_t size = size_of(a.dtype), stride = rows_a.inner;
  if ((address_b - address_a) % size != 0 || stride <= 0) return false;
  const std::int64_t shift = (address_b - address_a) / size;
  const std::int64_t within = ((shift % stride) + stride) % stride;
  return within < problem.columns || within + problem.columns > stride;
}

bool is_same_place(const TensorView& a, const NormRows& rows_a, const TensorView& b,
                   const NormRows& rows_b) {
  return a.data == b.data && a.dtype == b.dtype && rows_a.inner == rows_b.inner &&
         rows_a.outer == rows_b.outer;
}

// A written tensor may lie exactly where x or residual does, and nowhere else among the others.
void check_overlaps(std::span<const Rows> tensors, const Runs& runs, const NormProblem& problem) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      const bool both_written = tensors[j].written && tensors[i].written;
      if (i == j || !tensors[i].written || (both_written && j < i)) continue;
      const TensorView &a = *tensors[i].tensor, &b = *tensors[j].tensor;
      if (a.data == nullptr || b.data == nullptr) continue;
      if (!both_written && is_same_place(a, runs.strides[i], b, runs.strides[j])) continue;
      if (!shares_elements(a, runs.strides[i], b, runs.strides[j], problem)) continue;
      throw_value({problem.op, tensors[i].name},
                  std::string("overlaps ") + tensors[j].name +
                      "; it may be that very tensor, of the same dtype and strides, where that is "
                      "read, and must else have memory of its own");
    }
  }
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
    throw_value({problem.op, name}, "must be a finite number, got " + std::to_string(value));
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
  for (int i = 0; i < x.rank - 1; ++i) rows *= x.shape[i];
  if (columns > kMaxColumns || rows > kMaxRows) {
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
  const auto add = [&](std::size_t offset, const TensorView& tensor, bool written) {
    if (!tensor.given()) return;
    arguments.add_pointer(offset, tensor, written);
    arguments.require_alignment(
        arguments.pointers() - 1,
        static_cast<std::size_t>(std::min(vector * size_of(tensor.dtype), kVectorBytes)));
  };
  add(offsetof(NormParams, x), *tensors[0].tensor, false);
  add(offsetof(NormParams, weight), weight, false);
  add(offsetof(NormParams, bias), bias, false);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    add(tensors[i].pointer, *tensors[i].tensor, tensors[i].written);
  }
}

}  // namespace

void check_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& out, const NormOptions& options, NormProblem& problem) {
  problem.device_ordinal = check_device({problem.op, "x"}, x, -1);
  check_float({problem.op, "x"}, x);
  check_sizes(x, problem);
  check_options(options, problem);
  std::array<Rows, 4> list{};
  std::size_t count = 0;
  list[count++] = {"x", &x, false, offsetof(NormParams, x), offsetof(NormParams, x_rows)};
  list[count++] = {"out", &out, true, offsetof(NormParams, out), offsetof(NormParams, out_rows)};
  if (options.residual.given()) {
    list[count++] = {"residual", &options.residual, false, offsetof(NormParams, residual),
                     offsetof(NormParams, residual_rows)};
  }
  if (options.residual_out.given()) {
    list[count++] = {"residual_out", &options.residual_out, true,
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
  if (!problem.empty()) check_overlaps(tensors, runs, problem);
  traits.vector = static_cast<std::uint16_t>(vector_of(tensors, runs, weight, bias, problem));
  set_arguments(tensors, runs, weight, bias, options, problem);
}

TensorView norm_output(const TensorView& x, DType out_dtype) {
  TensorView out = x;
  out.data = nullptr;
  out.dtype = out_dtype == DType::none ? x.dtype : out_dtype;
  std::int64_t stride = 1;
  for (int i = x.rank - 1; i >= 0; --i) {
    out.strides[i] = stride;
    stride *= x.shape[i];
  }
  return out;
}

}  // namespace kiln
