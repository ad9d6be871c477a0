#include "jit/gemm/checks.h"

#include <tuple>

#include "jit/op/checks.h"
#include "jit/op/user_text.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

constexpr const char* kF8Names = "float8_e4m3fn or float8_e5m2";

// One of the two scales, and what it belongs to.
struct ScaleOf {
  const TensorView& scale;
  const GemmProblem& problem;
  bool is_a, batched, transposed;

  bool given() const { return scale.given(); }
  Subject subject() const { return {kGemmOp, is_a ? "scale_a" : "scale_b"}; }
  std::int64_t size() const { return is_a ? problem.m : problem.n; }
  std::int64_t groups() const { return (problem.k + kGemmScaleBlock - 1) / kGemmScaleBlock; }
  std::int64_t blocks() const { return (size() + kGemmScaleBlock - 1) / kGemmScaleBlock; }
  // Of scales of blocks, which are laid out as the operand is passed.
  int group_dimension() const { return scale.rank - (is_a == transposed ? 2 : 1); }
  int mn_dimension() const { return scale.rank - (is_a == transposed ? 1 : 2); }
  std::string block_shape(std::int64_t mn) const {
    const std::int64_t k = groups();
    const std::int64_t first = is_a == transposed ? k : mn, last = is_a == transposed ? mn : k;
    return "[" + std::to_string(first) + ", " + std::to_string(last) + "]";
  }
};

[[noreturn]] void refuse_scale_shape(const ScaleOf& given) {
  const auto& [scale, problem, is_a, batched, transposed] = given;
  const std::string size = std::to_string(given.size());
  const auto matrix = [&](const std::string& outer) {
    return "[" + outer + (is_a ? size + ", 1]" : "1, " + size + "]");
  };
  const std::string batch = std::to_string(problem.batch);
  throw_value(given.subject(),
              "must have shape [] or [1] (one for all), or [" + size + "]" +
                  (batched ? ", " : " or ") + matrix("") +
                  (batched ? ", [" + batch + ", " + size + "] or " + matrix(batch + ", ") : "") +
                  " (one for each " + (is_a ? "row" : "column") + " of " +
                  (!is_a && problem.traits.gate != Gate::none ? "b" : "the output") + "), got " +
                  shape_text(scale));
}

// Where one of the scales can only be of blocks, and this is none of such.
[[noreturn]] void refuse_block_shape(const ScaleOf& given) {
  const bool is_a = given.is_a;
  const std::string columns =
      is_a ? "" : " or " + given.block_shape(given.blocks()) + " (one for each 128 x 128 of b)";
  throw_value(given.subject(),
              "must have shape " + given.block_shape(given.size()) + " (one for each " +
                  (is_a ? "row of a" : "column of b") + " and 128 of K)" + columns + ", as " +
                  (is_a ? "scale_b" : "scale_a") + " has one for each 128 of K, got " +
                  (given.given() ? shape_text(given.scale) : "none") + "; it is laid out as " +
                  (is_a ? "a" : "b") +
                  " is passed, so w_scale.t() goes "
                  "with w.t()");
}

bool is_bytes(const ScaleOf& given) { return given.scale.dtype == DType::f8_e8m0; }

[[noreturn]] void refuse_bytes(const ScaleOf& given) {
  throw_type(given.subject(),
             "must be float32, as only scales of blocks, one for each 128 of K, may be "
             "float8_e8m0fnu, got shape " +
                 shape_text(given.scale));
}

// Whether a batch may have scales of such an outer extent: of its own, or one for all.
bool is_batch(const ScaleOf& given, std::int64_t extent) {
  return given.batched && (extent == given.problem.batch || extent == 1);
}

// Which dimension of a scale has an entry for each row or column; -1: its shape is none of those.
int long_dimension(const ScaleOf& given) {
  const TensorView& scale = given.scale;
  const int rank = scale.rank;
  if (rank < 1 || rank > (given.batched ? 3 : 2)) return -1;
  if (rank == 2 && is_batch(given, scale.shape[0]) && scale.shape[1] == given.size()) return 1;
  const int dimension = rank == 1 || !given.is_a ? rank - 1 : rank - 2;
  if (scale.shape[dimension] != given.size()) return -1;
  if (rank >= 2 && scale.shape[given.is_a ? rank - 1 : rank - 2] != 1) return -1;
  if (rank == 3 && !is_batch(given, scale.shape[0])) return -1;
  return dimension;
}

bool is_for_all(const TensorView& scale) {
  return scale.rank == 0 || (scale.rank == 1 && scale.shape[0] == 1);
}

bool is_dense(const TensorView& scale, int dimension) {
  return scale.shape[dimension] <= 1 || scale.strides[dimension] == 1;
}

// The granularity of a scale by its shape, if that is one of blocks; none: it is not.
Scale block_form(const ScaleOf& given) {
  const TensorView& scale = given.scale;
  if (!given.given() || !is_f8(given.problem.traits.input)) return Scale::none;
  if (scale.rank != 2 && !(scale.rank == 3 && given.batched)) return Scale::none;
  if (scale.rank == 3 && !is_batch(given, scale.shape[0])) return Scale::none;
  if (scale.shape[given.group_dimension()] != given.groups()) return Scale::none;
  const std::int64_t extent = scale.shape[given.mn_dimension()];
  if (extent == given.size()) return Scale::groups;
  return !given.is_a && extent == given.blocks() ? Scale::blocks : Scale::none;
}

// The distance between the scales of a batch, whose outer dimension comes first; 0: all share them.
std::int64_t batch_stride(const TensorView& scale) {
  return scale.shape[0] > 1 ? scale.strides[0] : 0;
}

CheckedScale check_vector(const ScaleOf& given) {
  const TensorView& scale = given.scale;
  if (!given.given()) return {};
  if (is_for_all(scale)) return {Scale::tensor};
  const int dimension = long_dimension(given);
  if (dimension < 0) refuse_scale_shape(given);
  if (!is_dense(scale, dimension)) {
    throw_value(given.subject(), "must have a stride of 1 between its entries, got " +
                                     std::to_string(scale.strides[dimension]) +
                                     "; call .contiguous()");
  }
  const bool has_batch = scale.rank == 3 || (scale.rank == 2 && dimension == 1);
  return {Scale::vector, has_batch ? batch_stride(scale) : 0};
}

CheckedScale check_blocks(const ScaleOf& given, Scale form) {
  if (form == Scale::none) refuse_block_shape(given);
  const TensorView& scale = given.scale;
  return {form, scale.rank == 3 ? batch_stride(scale) : 0, scale.strides[given.mn_dimension()],
          scale.strides[given.group_dimension()]};
}

}  // namespace

CheckedScales check_scales(const GemmOptions& options, const GemmProblem& problem, bool batched_a,
                           bool batched_b) {
  const ScaleOf a{options.scale_a, problem, true, batched_a, options.trans_a};
  const ScaleOf b{options.scale_b, problem, false, batched_b, options.trans_b};
  for (const ScaleOf* scale : {&a, &b}) {
    if (!scale->given()) continue;
    check_tensor(scale->subject(), scale->scale, problem.device_ordinal);
    const bool may_be_bytes = is_f8(problem.traits.input);
    if (!may_be_bytes || !is_bytes(*scale)) {
      check_dtype(scale->subject(), scale->scale, DType::f32, "");
    }
    check_data(scale->subject(), scale->scale, problem.may_be_null);
  }
  const bool bytes = is_bytes(a) || is_bytes(b);
  if (a.given() && b.given() && bytes) {
    check_dtype(b.subject(), b.scale, a.scale.dtype, " like scale_a");
  }
  // Where K is up to 128, a vector is a scale of blocks, too, and means the same. It is taken for
  // one where it is beside such a scale, or is not dense or of bytes, as only scales of blocks may
  // be.
  const Scale form_a = block_form(a), form_b = block_form(b);
  const bool both = form_a != Scale::none && form_b != Scale::none;
  const auto is_of_blocks = [both, bytes](const ScaleOf& given, Scale form) {
    if (form == Scale::none) return false;
    const int dimension = long_dimension(given);
    return dimension < 0 || (both && (bytes || !is_dense(given.scale, dimension)));
  };
  if (!is_of_blocks(a, form_a) && !is_of_blocks(b, form_b)) {
    if (bytes) refuse_bytes(is_bytes(a) ? a : b);
    return {check_vector(a), check_vector(b)};
  }
  if (options.fast) {
    throw_value({kGemmOp, "precision"},
                "\"fast\" cannot be combined with scales of blocks, which are factors of every 128 "
                "of K; leave it out");
  }
  if (problem.traits.gate != Gate::none) {
    throw_value({kGemmOp, "activation"},
                "cannot be gated where the scales are of blocks; apply it to the result");
  }
  return {check_blocks(a, form_a), check_blocks(b, form_b)};
}

Gate check_gate(const GemmOptions& options, std::int64_t columns) {
  check_option({kGemmOp, "activation"}, options.activation, Activation::geglu_tanh,
               "kiln::Activation");
  check_option({kGemmOp, "gate"}, options.gate, Gate::interleaved, "kiln::Gate");
  check_option({kGemmOp, "accumulator"}, options.accumulator, Accumulator::f16,
               "kiln::Accumulator");
  check_option({kGemmOp, "pdl"}, options.pdl, Pdl::weights, "kiln::Pdl");
  if (!is_gated(options.activation)) {
    if (options.gate == Gate::none) return Gate::none;
    throw_value({kGemmOp, "gate"},
                "is for the activations swiglu, geglu and geglu_tanh; leave it out");
  }
  if (has_epilogue(options)) {
    throw_value({kGemmOp, "activation"},
                "cannot be gated with an epilogue, which sees one column at a time");
  }
  if (columns % 2 != 0) {
    throw_value({kGemmOp, "b"},
                "must have an even number of columns, as each output has two with this "
                "activation, got " +
                    std::to_string(columns));
  }
  return options.gate == Gate::none ? Gate::halves : options.gate;
}

bool has_epilogue(const GemmOptions& options) {
  return !options.epilogue.empty() || options.bound_epilogue != nullptr;
}

void check_output_dtype(DType dtype) {
  if (is_float(dtype) || is_quantized(dtype)) return;
  throw_type({kGemmOp, "out"}, std::string("must be float16, bfloat16, float32, float8_e4m3fn, "
                                           "float8_e5m2 or int8, got ") +
                                   name(dtype));
}

EpilogueNames epilogue_names(std::string_view expression) {
  return {mentions_name(expression, "bias"), mentions_name(expression, "residual")};
}

void check_epilogue_names(const EpilogueNames& names, const EpilogueNames& given) {
  for (auto [name, named, has] :
       {std::tuple{"bias", names.bias, given.bias}, {"residual", names.residual, given.residual}}) {
    if (!named || has) continue;
    throw_value({kGemmOp, "epilogue"}, std::string("names ") + name +
                                           ", which is not given; give " + name +
                                           " too, or take it out of the expression");
  }
}

void check_gemm_dtypes(const TensorView& a, const TensorView& b, const GemmOptions& options) {
  if (!is_float(a.dtype) && !is_f8(a.dtype)) {
    throw_type({kGemmOp, "a"}, std::string("must be float16, bfloat16, float32, ") + kF8Names +
                                   ", got " + name(a.dtype));
  }
  if (is_f8(a.dtype)) {
    if (!is_f8(b.dtype)) {
      throw_type({kGemmOp, "b"}, std::string("must be ") + kF8Names + ", as a is " + name(a.dtype) +
                                     ", got " + name(b.dtype));
    }
  } else {
    check_dtype({kGemmOp, "b"}, b, a.dtype, " like a");
  }
  if (a.dtype == DType::f32 && !options.allow_tf32) {
    throw_type({kGemmOp, "a"},
               "is float32, which is computed in tf32 (10 bits of mantissa); pass "
               "precision=\"tf32\" to allow that, or cast to bfloat16 or float16");
  }
  if (options.allow_tf32 && a.dtype != DType::f32) {
    throw_value({kGemmOp, "precision"}, std::string("\"tf32\" is for float32 inputs, got ") +
                                            name(a.dtype) + "; leave it out");
  }
  if (options.fast && !is_f8(a.dtype)) {
    throw_value({kGemmOp, "precision"}, std::string("\"fast\" is for float8 inputs, got ") +
                                            name(a.dtype) + "; leave it out");
  }
  if (options.accumulator == Accumulator::f16 && a.dtype != DType::f16) {
    throw_type({kGemmOp, "accumulator"},
               std::string("float16 needs float16 inputs, got ") + name(a.dtype));
  }
}

void check_f8_operand(const F8Operand& operand) {
  const auto& [argument, tensor, k, major, ld, batch_stride] = operand;
  const Subject subject{kGemmOp, argument};
  const bool is_a = argument[0] == 'a';
  const std::string dtype = name(tensor.dtype);
  if (major != Major::k) {
    throw_value(subject, "must be contiguous along K, as it is " + dtype + ", got strides " +
                             strides_text(tensor) +
                             (is_a ? "; call .contiguous() on the [m, k] tensor"
                                   : "; pass w.t() of a contiguous [n, k] weight"));
  }
  if (k == 0) {
    throw_value(subject, "must have a K of 1 or more, as it is " + dtype + ", got shape " +
                             shape_text(tensor));
  }
  const auto is_whole = [](std::int64_t stride) { return stride >= 0 && stride % 16 == 0; };
  if (!is_aligned(tensor, 16)) {
    throw_value(subject, "must lie at a multiple of 16 bytes, as it is " + dtype +
                             "; copy it into a tensor of its own");
  }
  if (!is_whole(ld) || !is_whole(batch_stride)) {
    throw_value(subject, "must have strides beside that of K that are multiples of 16, as it is " +
                             dtype + ", got " + strides_text(tensor) +
                             "; pad K with zeros to a multiple of 16");
  }
}

}  // namespace kiln
