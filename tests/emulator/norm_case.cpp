// The problems of KernelCase for the norms. A row of x fills its threads but for a few, or half of
// them and so only some CTAs of a cluster, or has one access; a CTA has several rows, so that its
// ring of stages turns over, or a last one alone. In two launches a row has two parts, one, or
// three (where accesses are single elements, more than a warp has lanes).
#include <algorithm>
#include <cstddef>

#include "jit/norm/config.h"
#include "jit/norm/family.h"
#include "templates/norm/params.h"
#include "tests/emulator/kernel_case.h"
#include "tests/emulator/reference.h"

namespace kiln::testing {
namespace {

constexpr int kMaxColumns = 65536;

struct Shape {
  int rows = 1, accesses = 1;  // of a row of x
  unsigned blocks = 1;
  int splits = 1;
};

Shape whole_shape(const Specialization& spec, int size) {
  const NormConfig& config = norm_configs()[static_cast<std::size_t>(spec.row())];
  const auto traits = spec.traits_as<NormTraits>();
  const int stages = stages_of(config, traits, spec.arch());
  const int most = std::min(config.accesses(), kMaxColumns / traits.vector);
  Shape shape;
  shape.accesses = size == 0 ? most - 3 : size == 1 ? most / 2 + 1 : 1;
  if (stages == 0) {
    shape.rows = size == 2 ? 1 : config.rows_per_block + 1;
    shape.blocks =
        static_cast<unsigned>(norm_blocks(shape.rows, config.rows_per_block, config.cluster));
  } else {
    const int clusters = size == 1 ? 2 : 1;
    shape.rows = size == 2 ? 1 : (stages + 2) * clusters - size;
    shape.blocks = static_cast<unsigned>(clusters * config.cluster);
  }
  return shape;
}

Shape split_shape(const Specialization& spec, int size) {
  const NormSplitConfig& config = norm_split_configs(1)[static_cast<std::size_t>(spec.row())];
  const int vector = spec.traits_as<NormTraits>().vector;
  const int parts = size == 0 ? 2 : size == 1 ? 1 : vector == 1 ? 34 : 3;
  Shape shape;
  shape.rows = 2;
  shape.accesses = parts * config.accesses() - 3;
  shape.splits = norm_splits(shape.accesses * vector, config.accesses() * vector);
  shape.blocks = static_cast<unsigned>(shape.rows * shape.splits);
  return shape;
}

}  // namespace

void KernelCase::make_norm(int size) {
  const auto traits = spec_.traits_as<NormTraits>();
  const Family& family = *spec_.kernel().family;
  const bool whole = &spec_.kernel() == &norm_template(family, NormTemplate::whole);
  const Shape shape = whole ? whole_shape(spec_, size) : split_shape(spec_, size);
  NormReference problem;
  problem.traits = traits;
  problem.rows = shape.rows, problem.columns = shape.accesses * traits.vector;
  problem.eps = 1e-3f, problem.weight_offset = 0.5f;
  NormOptions options;
  options.eps = problem.eps, options.weight_offset = problem.weight_offset;
  options.activation = traits.activation;
  const auto add = [&](bool wanted, DType dtype, std::initializer_list<std::int64_t> sizes,
                       TensorView& view, std::vector<float>& values) {
    if (!wanted) return;
    const Tensor& made = tensor(dtype, sizes);
    view = made.view, values = made.values;
  };
  TensorView x, weight, bias;
  add(true, traits.input, {shape.rows, problem.columns}, x, problem.x);
  add(traits.residual, traits.input, {shape.rows, problem.columns}, options.residual,
      problem.residual);
  add(traits.weight != DType::none, traits.weight, {problem.columns}, weight, problem.weight);
  add(traits.bias != DType::none, traits.bias, {problem.columns}, bias, problem.bias);
  Tensor& out = tensor(traits.output, {shape.rows, problem.columns});
  outputs_.push_back({&out, reference(problem), epsilon(traits.output)});
  if (traits.residual) {
    Tensor& sum = tensor(traits.input, {shape.rows, problem.columns});
    options.residual_out = sum.view;
    outputs_.push_back({&sum, sums(problem), epsilon(traits.input)});
  }
  NormProblem call(traits.kind);
  check_norm(x, weight, bias, out.view, options, call);
  Step& first = call.recipe.first();
  first.spec = spec_;
  first.blocks = shape.blocks;
  if (whole) {
    first.cluster =
        static_cast<unsigned>(norm_configs()[static_cast<std::size_t>(spec_.row())].cluster);
  } else {
    const auto bytes = static_cast<std::size_t>(norm_workspace_bytes(shape.rows, shape.splits));
    call.recipe.workspace_bytes = bytes;
    first.arguments.set_int(offsetof(NormParams, splits), shape.splits);
    first.arguments.want_workspace(offsetof(NormParams, workspace), 0, bytes);
    Step& second = call.recipe.add();
    second = first;
    second.programmatic = true;  // devices before sm_90 launch it as any other
    const auto part = [&](NormTemplate which) {
      return Specialization(norm_template(family, which), spec_.arch(), spec_.row(), traits);
    };
    first.spec = part(NormTemplate::partial), second.spec = part(NormTemplate::apply);
  }
  recipe_ = call.recipe;
}

}  // namespace kiln::testing
