#include "jit/gemm/checks.h"

#include <tuple>

#include "jit/op/checks.h"
#include "jit/op/user_text.h"

namespace kiln {
namespace {

constexpr const char* kF8Names = "float8_e4m3fn or float8_e5m2";

[[noreturn]] void refuse_scale_shape(Subject subject, const TensorView& scale,
                                     const GemmProblem& problem, bool is_a, bool batched) {
  const std::string size = std::to_string(is_a ? problem.m : problem.n);
  const auto matrix = [&](const std::string& outer) {
    return "[" + outer + (is_a ? size + ", 1]" : "1, " + size + "]");
  };
  const std::string batch = std::to_string(problem.batch);
  throw_value(subject, "must have shape [] or [1] (one for all), or [" + size + "]" +
                           (batched ? ", " : " or ") + matrix("") +
                           (batched ? " or " + matrix(batch + ", ") : "") + " (one for each " +
                           (is_a ? "row" : "column") + " of " +
                           (!is_a && problem.traits.gate != Gate::none ? "b" : "the output") +
                           "), got " + shape_text(scale));
}

// Which dimension of a scale has an entry for each row or column; -1: its shape is none of those.
int long_dimension(const TensorView& scale, const GemmProblem& problem, bool is_a, bool batched) {
  const std::int64_t size = is_a ? problem.m : problem.n;
  const int rank = scale.rank;
  if (rank < 1 || rank > (batched ? 3 : 2)) return -1;
  const int dimension = rank == 1 || !is_a ? rank - 1 : rank - 2;
  if (scale.shape[dimension] != size) return -1;
  if (rank >= 2 && scale.shape[is_a ? rank - 1 : rank - 2] != 1) return -1;
  if (rank == 3 && scale.shape[0] != problem.batch) return -1;
  return dimension;
}

}  // namespace

CheckedScale check_scale(const TensorView& scale, const GemmProblem& problem, bool is_a,
                         bool batched) {
  const Subject subject{kGemmOp, is_a ? "scale_a" : "scale_b"};
  check_tensor(subject, scale, problem.device_ordinal);
  check_dtype(subject, scale, DType::f32, "");
  check_data(subject, scale, problem.may_be_null);
  if (scale.rank == 0 || (scale.rank == 1 && scale.shape[0] == 1)) return {Scale::tensor, 0};
  const int dimension = long_dimension(scale, problem, is_a, batched);
  if (dimension < 0) refuse_scale_shape(subject, scale, problem, is_a, batched);
  if (scale.shape[dimension] > 1 && scale.strides[dimension] != 1) {
    throw_value(subject, "must have a stride of 1 between its entries, got " +
                             std::to_string(scale.strides[dimension]) + "; call .contiguous()");
  }
  return {Scale::vector, scale.rank == 3 && problem.batch > 1 ? scale.strides[0] : 0};
}

bool is_gated(Activation activation) { return activation >= Activation::swiglu; }

namespace {

// An option whose number is none of its type, as a cast can make.
template <class Option>
void check_option(const char* argument, Option value, Option last, const char* type) {
  if (value <= last) [[likely]]
    return;
  throw_value({kGemmOp, argument}, std::string("must be a value of ") + type + ", got " +
                                       std::to_string(static_cast<int>(value)));
}

}  // namespace

Gate check_gate(const GemmOptions& options, std::int64_t columns) {
  check_option("activation", options.activation, Activation::geglu_tanh, "kiln::Activation");
  check_option("gate", options.gate, Gate::interleaved, "kiln::Gate");
  check_option("accumulator", options.accumulator, Accumulator::f16, "kiln::Accumulator");
  if (!is_gated(options.activation)) {
    if (options.gate == Gate::none) return Gate::none;
    throw_value({kGemmOp, "gate"},
                "is for the activations swiglu, geglu and geglu_tanh; leave it out");
  }
  if (!options.epilogue.empty()) {
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
