#include "jit/gemm/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "jit/gemm/checks.h"
#include "jit/gemm/groups.h"
#include "jit/gemm/user_epilogue.h"
#include "jit/op/checks.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 1024;

// One operand as a batch of matrices with the transposition applied.
struct Matrix {
  std::int64_t batch, rows, cols;
  std::int64_t batch_stride, row_stride, col_stride;
};

Matrix as_matrix(const char* argument, const TensorView& t, bool transposed) {
  if (t.rank != 2 && t.rank != 3) {
    throw_value({kGemmOp, argument},
                "must have 2 dimensions, or 3 with a batch, got " + shape_text(t));
  }
  const int r = t.rank - 2, c = t.rank - 1;
  Matrix m{t.rank == 3 ? t.shape[0] : 1,   t.shape[r],   t.shape[c],
           t.rank == 3 ? t.strides[0] : 0, t.strides[r], t.strides[c]};
  if (transposed) {
    std::swap(m.rows, m.cols);
    std::swap(m.row_stride, m.col_stride);
  }
  if (m.batch == 1) m.batch_stride = 0;
  for (std::int64_t extent : {m.batch, m.rows, m.cols}) {
    if (extent > kMaxExtent) {
      throw_value({kGemmOp, argument}, "must have sizes of at most 2^31 - 1025, got " +
                                           shape_text(t) + "; split the product");
    }
  }
  return m;
}

struct Operand {
  Major major;
  std::int64_t ld;
};

// Which dimension is contiguous; k wins where both are, so that a vector is read along k. A k of 1
// is contiguous whatever its stride, which counts where nothing else than k may be (`only_k`).
Operand layout_of(const char* argument, std::int64_t k_extent, std::int64_t k_stride,
                  std::int64_t mn_extent, std::int64_t mn_stride, bool only_k) {
  if (k_stride == 1 || (only_k && k_extent == 1)) return {Major::k, mn_extent == 1 ? 0 : mn_stride};
  if (mn_stride == 1) return {Major::mn, k_extent == 1 ? 0 : k_stride};
  if (k_extent == 1) return {Major::k, mn_stride};
  if (mn_extent == 1) return {Major::mn, k_stride};
  throw_value({kGemmOp, argument},
              "must have a stride of 1 in one of its last two dimensions; call .contiguous() or "
              "numpy.ascontiguousarray()");
}

// A stride in bytes that tensor maps can hold.
bool is_map_stride(std::int64_t bytes) {
  return bytes >= 0 && bytes < std::int64_t{1} << 40 && bytes % 16 == 0;
}

// `extent`: elements along the contiguous dimension; `ld` and `batch_stride`: the other strides.
Access access_of(const TensorView& tensor, std::int64_t extent, std::int64_t ld,
                 std::int64_t batch_stride) {
  const int size = size_of(tensor.dtype);
  if (!is_aligned(tensor, 16) || !is_map_stride(ld * size) || !is_map_stride(batch_stride * size)) {
    return Access::elements;
  }
  return extent * size % 16 == 0 ? Access::vectors : Access::boxes;
}

// The halves of a gated b are read side by side, as matrices of their own.
Access access_of_b(const TensorView& b, const Matrix& matrix, const Operand& operand, Gate gate) {
  const bool by_k = operand.major == Major::k;
  const std::int64_t columns = gate == Gate::halves ? matrix.cols / 2 : matrix.cols;
  const std::int64_t apart = gate == Gate::halves ? columns * (by_k ? operand.ld : 1) : 0;
  if (!is_map_stride(apart * size_of(b.dtype))) return Access::elements;
  return access_of(b, by_k ? matrix.rows : columns, operand.ld, matrix.batch_stride);
}

// Whether what is read beside the output can be read by vectors as wide as the output's.
bool has_vectors(const TensorView& tensor, std::int64_t ld, std::int64_t batch_stride, int vector) {
  return is_aligned(tensor, 16) && ld % vector == 0 && batch_stride % vector == 0 &&
         access_of(tensor, 0, ld, batch_stride) != Access::elements;
}

std::int64_t common_batch(const TensorView& a, const TensorView& b, bool has_counts) {
  const std::int64_t batch_a = a.rank == 3 ? a.shape[0] : 1, batch_b = b.rank == 3 ? b.shape[0] : 1;
  if (batch_a != batch_b && batch_a != 1 && batch_b != 1) {
    throw_value({kGemmOp, "b"},
                "must have " + std::to_string(batch_a) +
                    (has_counts ? " groups like a" : " batch entries like a, or 1") + ", got " +
                    std::to_string(batch_b) + ": a is " + shape_text(a) + ", b is " +
                    shape_text(b));
  }
  return batch_a == 1 ? batch_b : batch_a;
}

// Whether the output has a dimension of the batch.
bool has_batch(const TensorView& a, const TensorView& b, bool has_offsets) {
  return a.rank == 3 || (b.rank == 3 && !has_offsets);
}

// The dtype is the caller's to check.
Matrix check_like_output(const char* argument, const TensorView& tensor, std::int64_t batch,
                         std::int64_t m, std::int64_t n, bool batched, bool may_be_null) {
  const Subject subject{kGemmOp, argument};
  if (batched) {
    check_shape(subject, tensor, {batch, m, n});
  } else {
    check_shape(subject, tensor, {m, n});
  }
  check_last_stride(subject, tensor);
  check_data(subject, tensor, may_be_null);
  return as_matrix(argument, tensor, false);
}

// Strides of the bias between batch entries; checks its shape [n] or [batch, 1, n], or [groups, n].
std::int64_t check_bias(const TensorView& bias, const GemmProblem& problem) {
  const Subject subject{kGemmOp, "bias"};
  check_tensor(subject, bias, problem.device_ordinal);
  check_float(subject, bias);
  const bool grouped = problem.traits.grouping != Grouping::none && bias.rank == 2;
  if (grouped) {
    check_shape(subject, bias, {problem.batch, problem.n});
  } else if (bias.rank == 3) {
    check_shape(subject, bias, {problem.batch, 1, problem.n});
  } else {
    check_shape(subject, bias, {problem.n});
  }
  check_last_stride(subject, bias);
  check_data(subject, bias, problem.may_be_null);
  return bias.rank > 1 && problem.batch > 1 ? bias.strides[0] : 0;
}

// Checks and notes the tensors that are read beside a and b. It needs the sizes, and the traits of
// a, b and out.
void set_inputs(const GemmOptions& options, bool batched, bool batched_b, GemmProblem& problem,
                GemmParams& p) {
  GemmTraits& traits = problem.traits;
  const int vector = 16 / size_of(traits.output);
  const auto read_beside = [&](const TensorView& tensor, std::int64_t ld, std::int64_t batch_ld) {
    if (!has_vectors(tensor, ld, batch_ld, vector)) {
      traits.stores = std::min(traits.stores, Access::boxes);
    }
  };
  if (options.bias.given()) {
    p.bias = options.bias.data, p.bias_batch = check_bias(options.bias, problem);
    traits.bias = options.bias.dtype;
    read_beside(options.bias, 0, p.bias_batch);
  }
  if (options.residual.given()) {
    check_tensor({kGemmOp, "residual"}, options.residual, problem.device_ordinal);
    check_float({kGemmOp, "residual"}, options.residual);
    const Matrix mr = check_like_output("residual", options.residual, problem.batch, p.m, p.n,
                                        batched, problem.may_be_null);
    p.residual = options.residual.data;
    p.residual_ld = mr.row_stride, p.residual_batch = mr.batch_stride;
    traits.residual = options.residual.dtype;
    read_beside(options.residual, mr.row_stride, mr.batch_stride);
  }
  const auto [scale_a, scale_b] = check_scales(options, problem, batched, batched_b);
  traits.scale_a = scale_a.scale, traits.scale_b = scale_b.scale;
  if (options.scale_a.dtype == DType::f8_e8m0) traits.scale_dtype = DType::f8_e8m0;
  p.scale_a = static_cast<const float*>(options.scale_a.data);
  p.scale_b = static_cast<const float*>(options.scale_b.data);
  p.scale_a_batch = scale_a.batch_stride, p.scale_b_batch = scale_b.batch_stride;
  p.scale_a_row = scale_a.mn_stride, p.scale_a_group = scale_a.group_stride;
  p.scale_b_column = scale_b.mn_stride, p.scale_b_group = scale_b.group_stride;
  if (scale_b.scale == Scale::vector) read_beside(options.scale_b, 0, scale_b.batch_stride);
}

// The order is Plan::launch's.
void add_tensors(const TensorView& a, const TensorView& b, const TensorView& out,
                 const GemmOptions& options, GemmProblem& problem) {
  problem.add_tensor(offsetof(GemmParams, a), {"a", &a, Use::read});
  problem.add_tensor(offsetof(GemmParams, b), {"b", &b, Use::read});
  problem.add_tensor(offsetof(GemmParams, out), {"out", &out, Use::written});
  const auto add_input = [&](std::size_t offset, const CallTensor& tensor) {
    if (tensor.view->given()) problem.add_tensor(offset, tensor);
  };
  add_input(offsetof(GemmParams, bias), {"bias", &options.bias, Use::read});
  // An element is read by the thread block that writes the same element of out, and before that.
  add_input(offsetof(GemmParams, residual), {"residual", &options.residual, Use::replaceable});
  add_input(offsetof(GemmParams, scale_a), {"scale_a", &options.scale_a, Use::read});
  add_input(offsetof(GemmParams, scale_b), {"scale_b", &options.scale_b, Use::read});
  add_input(offsetof(GemmParams, group_rows), {"offsets", &options.offsets, Use::read});
  add_input(offsetof(GemmParams, group_rows), {"counts", &options.counts, Use::read});
  if (options.bound_epilogue != nullptr) add_epilogue_arguments(*options.bound_epilogue, problem);
}

}  // namespace

Activation parse_activation(const std::string& name) {
  if (name.empty()) return Activation::none;
  if (const auto value = value_of(kActivationNames, name)) return static_cast<Activation>(*value);
  throw_value(
      {kGemmOp, "activation"},
      "must be " + choices_text(std::span(kActivationNames).subspan(1)) + ", got '" + name + "'");
}

Gate parse_gate(const std::string& name) {
  if (name.empty() || name == "none") return Gate::none;
  if (const auto value = value_of(kGateNames, name)) return static_cast<Gate>(*value);
  throw_value({kGemmOp, "gate"}, "must be " + choices_text(kGateNames) + ", got '" + name + "'");
}

DType gemm_output_dtype(DType input) { return is_f8(input) ? DType::bf16 : input; }

TensorView gemm_output(const TensorView& a, const TensorView& b, DType out_dtype,
                       const GemmOptions& options) {
  check_view({kGemmOp, "a"}, a);
  check_view({kGemmOp, "b"}, b);
  const Matrix ma = as_matrix("a", a, options.trans_a), mb = as_matrix("b", b, options.trans_b);
  const std::int64_t batch = common_batch(a, b, options.counts.given());
  const std::int64_t columns = check_gate(options, mb.cols) == Gate::none ? mb.cols : mb.cols / 2;
  TensorView out =
      has_batch(a, b, options.offsets.given())
          ? contiguous_view(nullptr, out_dtype, a.device_ordinal, batch, ma.rows, columns)
          : contiguous_view(nullptr, out_dtype, a.device_ordinal, ma.rows, columns);
  out.device_type = a.device_type;
  return out;
}

void check_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                const GemmOptions& options, GemmProblem& problem) {
  problem.device_ordinal = check_tensor({kGemmOp, "a"}, a, -1);
  check_tensor({kGemmOp, "b"}, b, problem.device_ordinal);
  check_tensor({kGemmOp, "out"}, out, problem.device_ordinal);
  check_gemm_dtypes(a, b, options);
  const Matrix ma = as_matrix("a", a, options.trans_a), mb = as_matrix("b", b, options.trans_b);
  check_data({kGemmOp, "a"}, a, problem.may_be_null);
  check_data({kGemmOp, "b"}, b, problem.may_be_null);
  if (ma.cols != mb.rows) {
    throw_value({kGemmOp, "b"},
                "must have " + std::to_string(ma.cols) + " rows, the columns of a; a is " +
                    shape_text(a) + ", b is " + shape_text(b) +
                    (options.trans_a || options.trans_b ? " before transposing" : ""));
  }
  const std::int64_t batch = common_batch(a, b, options.counts.given());
  const CheckedGroups groups = check_groups(a, b, options, problem);
  const bool batched = has_batch(a, b, groups.grouping == Grouping::offsets);
  GemmTraits& traits = problem.traits;
  traits.grouping = groups.grouping;
  problem.expected_rows = options.expected_rows;
  traits.gate = check_gate(options, mb.cols);
  const std::int64_t columns = traits.gate == Gate::none ? mb.cols : mb.cols / 2;  // of out
  check_output_dtype(out.dtype);
  const Matrix mo =
      check_like_output("out", out, batch, ma.rows, columns, batched, problem.may_be_null);
  check_written({kGemmOp, "out"}, out);
  problem.batch = static_cast<int>(batch), problem.m = static_cast<int>(ma.rows);
  problem.n = static_cast<int>(mb.cols), problem.k = static_cast<int>(ma.cols);
  problem.tile = options.config, problem.pdl = options.pdl;

  const bool f8 = is_f8(a.dtype), only_k = f8 || traits.grouping != Grouping::none;
  const Operand oa = layout_of("a", ma.cols, ma.col_stride, ma.rows, ma.row_stride, only_k);
  const Operand ob = layout_of("b", mb.rows, mb.row_stride, mb.cols, mb.col_stride, f8);
  if (traits.grouping != Grouping::none && oa.major != Major::k) {
    throw_value({kGemmOp, "a"},
                "must be contiguous along K where its rows are in groups, got "
                "strides " +
                    strides_text(a) + "; call .contiguous() on the tensor with K last");
  }
  if (f8) {
    check_f8_operand({"a", a, ma.cols, oa.major, oa.ld, ma.batch_stride});
    check_f8_operand({"b", b, mb.rows, ob.major, ob.ld, mb.batch_stride});
  }
  traits.input = a.dtype, traits.input_b = b.dtype == a.dtype ? DType::none : b.dtype;
  traits.fast = options.fast;
  traits.output = out.dtype, traits.accumulator = options.accumulator;
  traits.major_a = oa.major, traits.major_b = ob.major;
  traits.loads =
      std::min(access_of(a, oa.major == Major::k ? ma.cols : ma.rows, oa.ld, ma.batch_stride),
               access_of_b(b, mb, ob, traits.gate));
  traits.stores = access_of(out, mo.cols, mo.row_stride, mo.batch_stride);
  // A box that ends within 16 bytes is stored to the end of these: into the caller's memory behind.
  if (traits.stores == Access::boxes) traits.stores = Access::elements;
  check_epilogue(options, problem);

  GemmParams p{};
  p.a = a.data, p.b = b.data, p.out = out.data;
  p.a_ld = oa.ld, p.b_ld = ob.ld, p.out_ld = mo.row_stride;
  p.a_batch = ma.batch_stride, p.b_batch = mb.batch_stride, p.out_batch = mo.batch_stride;
  p.m = problem.m, p.n = static_cast<int>(columns), p.k = problem.k, p.batch = problem.batch;
  p.alpha = options.alpha;
  p.splits = 1, p.whole_tiles = std::numeric_limits<int>::max();
  p.weights_ahead = problem.pdl == Pdl::weights;
  if (!std::isfinite(p.alpha)) {
    throw_value({kGemmOp, "alpha"}, "must be a finite number, got " + number_text(p.alpha));
  }
  if (groups.rows != nullptr) p.group_rows = static_cast<const int*>(groups.rows->data);
  set_inputs(options, batched, batched || b.rank == 3, problem, p);
  problem.arguments().set_params(p);
  add_tensors(a, b, out, options, problem);
  check_overlaps(problem);
}

}  // namespace kiln
