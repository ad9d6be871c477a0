#include "jit/gemm/groups.h"

#include <algorithm>
#include <string>

#include "jit/gemm/checks.h"
#include "jit/op/checks.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

// a and b of a call with groups of rows.
void check_operands(const char* argument, const TensorView& a, const TensorView& b,
                    Grouping grouping) {
  if (b.rank != 3) {
    throw_value({kGemmOp, "b"}, std::string("must have 3 dimensions [groups, k, n] with ") +
                                    argument + ", got " + shape_text(b));
  }
  if (grouping == Grouping::offsets && a.rank != 2) {
    throw_value({kGemmOp, "a"},
                "must have 2 dimensions with offsets, the rows of all groups, got " +
                    shape_text(a) + "; counts are for [groups, rows, k]");
  }
  if (grouping == Grouping::counts && (a.rank != 3 || a.shape[0] != b.shape[0])) {
    throw_value({kGemmOp, "a"}, "must have 3 dimensions [groups, rows, k] with counts, and " +
                                    std::to_string(b.shape[0]) + " groups like b, got " +
                                    shape_text(a) + "; offsets are for [rows, k]");
  }
}

// Groups that can have rows.
std::int64_t most_groups(const GemmProblem& problem) {
  return problem.traits.grouping == Grouping::offsets
             ? std::min<std::int64_t>(problem.batch, problem.m)
             : problem.batch;
}

}  // namespace

CheckedGroups check_groups(const TensorView& a, const TensorView& b, const GemmOptions& options,
                           const GemmProblem& problem) {
  const bool by_offsets = options.offsets.given();
  if (options.expected_rows < 0) {
    throw_value({kGemmOp, "expected_rows"},
                "must not be negative, got " + std::to_string(options.expected_rows));
  }
  if (!by_offsets && !options.counts.given()) {
    if (options.expected_rows == 0) return {};
    throw_value({kGemmOp, "expected_rows"},
                "is for rows in groups; give offsets or counts, or leave it out");
  }
  if (by_offsets && options.counts.given()) {
    throw_value({kGemmOp, "counts"}, "cannot be given beside offsets; give one of the two");
  }
  const CheckedGroups groups = by_offsets ? CheckedGroups{Grouping::offsets, &options.offsets}
                                          : CheckedGroups{Grouping::counts, &options.counts};
  const char* const argument = by_offsets ? "offsets" : "counts";
  check_operands(argument, a, b, groups.grouping);
  const Subject subject{kGemmOp, argument};
  check_tensor(subject, *groups.rows, problem.device_ordinal);
  check_dtype(subject, *groups.rows, DType::i32, "");
  check_shape(subject, *groups.rows, {b.shape[0]});
  check_last_stride(subject, *groups.rows);
  check_data(subject, *groups.rows, problem.may_be_null);
  return groups;
}

GemmExtent extent_of(const GemmProblem& problem) {
  GemmExtent extent{problem.m, problem.n, problem.k, problem.batch};
  if (problem.traits.grouping == Grouping::none || problem.empty()) return extent;
  const std::int64_t groups = most_groups(problem);
  const bool by_offsets = problem.traits.grouping == Grouping::offsets;
  extent.m = problem.expected_rows > 0 ? std::min<std::int64_t>(problem.expected_rows, problem.m)
             : by_offsets              ? (problem.m + groups - 1) / groups
                                       : problem.m;
  extent.batch = by_offsets ? std::min(groups, (problem.m + extent.m - 1) / extent.m) : groups;
  return extent;
}

long long most_tiles(const GemmProblem& problem, int block_m, int block_n) {
  if (problem.traits.grouping != Grouping::offsets) {
    return gemm_tiles(problem.m, problem.n, problem.batch, block_m, block_n);
  }
  // Each group but one may end in a tile that is not full.
  const long long of_rows = problem.m / block_m + most_groups(problem);
  return of_rows * ((problem.n + block_n - 1) / block_n);
}

}  // namespace kiln
