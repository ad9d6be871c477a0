#include "jit/moe_route/problem.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "jit/moe_route/config.h"
#include "jit/op/checks.h"
#include "templates/moe_route/params.h"

namespace kiln {
namespace {

void check_logits(const TensorView& logits, RouteProblem& problem) {
  const Subject subject{problem.op, "logits"};
  problem.device_ordinal = check_tensor(subject, logits, -1);
  check_float(subject, logits);
  check_rank(subject, logits, 2, "[tokens, experts]");
  const int most = route_configs().back().experts;
  if (logits.shape[1] < 1 || logits.shape[1] > most ||
      logits.shape[0] > std::numeric_limits<std::int32_t>::max()) {
    throw_value(subject, "must have 1 to " + std::to_string(most) +
                             " experts and at most 2^31 - 1 tokens, got " + shape_text(logits));
  }
  check_last_stride(subject, logits);
  check_data(subject, logits, problem.may_be_null);
  problem.tokens = static_cast<int>(logits.shape[0]);
  problem.experts = static_cast<int>(logits.shape[1]);
}

void check_choice(const char* name, const TensorView& tensor, DType dtype,
                  const RouteProblem& problem) {
  const Subject subject{problem.op, name};
  check_tensor(subject, tensor, problem.device_ordinal);
  check_dtype(subject, tensor, dtype, "");
  check_shape(subject, tensor, {problem.tokens, problem.top_k});
  check_data(subject, tensor, problem.may_be_null);
  check_written(subject, tensor);
}

void check_groups(const MoeRouteOptions& options, const RouteProblem& problem) {
  const int groups = options.groups, top_groups = options.top_groups;
  if (groups < 1 || groups > kMostRoutes || problem.experts % groups != 0) {
    throw_value({problem.op, "groups"}, "must divide the " + std::to_string(problem.experts) +
                                            " experts and be at most 32, got " +
                                            std::to_string(groups));
  }
  if (top_groups < 1 || top_groups > groups) {
    throw_value({problem.op, "top_groups"}, "must be 1 to the number of groups, " +
                                                std::to_string(groups) + ", got " +
                                                std::to_string(top_groups));
  }
}

void check_top_k(std::int64_t top_k, const MoeRouteOptions& options, RouteProblem& problem) {
  const int most = std::min(kMostRoutes, problem.experts / options.groups * options.top_groups);
  if (top_k < 1 || top_k > most) {
    throw_value({problem.op, "top_k"}, "must be 1 to " + std::to_string(most) +
                                           ", the experts to choose from and at most 32, got " +
                                           std::to_string(top_k));
  }
  problem.top_k = static_cast<int>(top_k);
}

void check_bias(const TensorView& bias, const RouteProblem& problem) {
  if (!bias.given()) return;
  const Subject subject{problem.op, "bias"};
  check_tensor(subject, bias, problem.device_ordinal);
  check_float(subject, bias);
  check_shape(subject, bias, {problem.experts});
  check_data(subject, bias, problem.may_be_null);
}

}  // namespace

void check_moe_route(const TensorView& logits, const TensorView& weights, const TensorView& experts,
                     const MoeRouteOptions& options, RouteProblem& problem) {
  check_option({problem.op, "scoring"}, options.scoring, MoeScoring::sigmoid, "kiln::MoeScoring");
  check_logits(logits, problem);
  check_groups(options, problem);
  check_rank({problem.op, "weights"}, weights, 2, "[tokens, top_k]");
  check_top_k(weights.shape[1], options, problem);
  check_choice("weights", weights, DType::f32, problem);
  check_choice("experts", experts, DType::i32, problem);
  check_bias(options.bias, problem);
  if (!std::isfinite(options.scale)) {
    throw_value({problem.op, "scale"},
                "must be a finite number, got " + number_text(options.scale));
  }
  RouteTraits& traits = problem.traits;
  traits.input = logits.dtype, traits.bias = options.bias.dtype, traits.scoring = options.scoring;
  RouteParams p{};
  p.logits = logits.data, p.bias = options.bias.data;
  p.weights = static_cast<float*>(weights.data), p.chosen = static_cast<int*>(experts.data);
  p.logits_row = dimension_stride(logits, 0);
  if (options.bias.given()) p.bias_stride = dimension_stride(options.bias, 0);
  p.weights_row = dimension_stride(weights, 0), p.weights_k = dimension_stride(weights, 1);
  p.chosen_row = dimension_stride(experts, 0), p.chosen_k = dimension_stride(experts, 1);
  p.tokens = problem.tokens, p.experts = problem.experts, p.top_k = problem.top_k;
  p.groups = options.groups, p.top_groups = options.top_groups;
  p.renormalize = options.renormalize, p.scale = options.scale;
  problem.arguments().set_params(p);
  problem.add_tensor(offsetof(RouteParams, logits), {"logits", &logits, Use::read});
  problem.add_tensor(offsetof(RouteParams, weights), {"weights", &weights, Use::written});
  problem.add_tensor(offsetof(RouteParams, chosen), {"experts", &experts, Use::written});
  if (options.bias.given()) {
    problem.add_tensor(offsetof(RouteParams, bias), {"bias", &options.bias, Use::read});
  }
  check_overlaps(problem);
}

}  // namespace kiln
