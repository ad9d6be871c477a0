// The checks of gemm that concern scales and 8-bit floats alone.
#pragma once

#include "jit/gemm/problem.h"

namespace kiln {

inline constexpr const char* kGemmOp = "gemm";  // in messages

struct CheckedScale {
  Scale scale = Scale::none;
  std::int64_t batch_stride = 0;
  // Of groups and blocks: between rows, columns or blocks of columns, and between 128s of K.
  std::int64_t mn_stride = 0, group_stride = 0;
};
struct CheckedScales {
  CheckedScale a, b;
};

// Either scale may be absent. `batched_a`, `batched_b`: whether it may have a dimension of the
// batch. Requires: the sizes, the input dtype and the gate of `problem`.
CheckedScales check_scales(const GemmOptions& options, const GemmProblem& problem, bool batched_a,
                           bool batched_b);

// Checks the options that are enumerations, and says where b's pairs of columns lie; none: the
// outputs are not gated. `columns`: of b.
Gate check_gate(const GemmOptions& options, std::int64_t columns);

// What an epilogue expression may name: throws std::invalid_argument for a bias or residual that
// the call does not have, which would be computed with as 0.
struct EpilogueNames {
  bool bias = false, residual = false;
};
EpilogueNames epilogue_names(std::string_view expression);
void check_epilogue_names(const EpilogueNames& names, const EpilogueNames& given);

// Whether the options have an epilogue of the user's, of either kind.
bool has_epilogue(const GemmOptions& options);

// Throws TypeError where no output can have it.
void check_output_dtype(DType dtype);

// Dtypes of a and b, and what the options allow for them.
void check_gemm_dtypes(const TensorView& a, const TensorView& b, const GemmOptions& options);

// Of one operand with 8-bit floats: contiguous along K, which is not 0, and of a form that
// tensor maps admit.
// `ld`: the stride of rows of a, or of columns of b.
struct F8Operand {
  const char* argument;
  const TensorView& tensor;
  std::int64_t k;
  Major major;
  std::int64_t ld, batch_stride;
};
void check_f8_operand(const F8Operand& operand);

}  // namespace kiln
