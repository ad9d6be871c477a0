#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "jit/norm/config.h"
#include "jit/norm/family.h"
#include "jit/op/arch.h"
#include "jit/op/checks.h"
#include "jit/op/occupancy.h"
#include "templates/norm/params.h"

namespace kiln {
namespace {

const NormConfig& config_at(int row) { return norm_configs()[static_cast<std::size_t>(row)]; }
const NormSplitConfig& split_at(int row) {
  return norm_split_configs(1)[static_cast<std::size_t>(row)];
}

bool serves(const NormConfig& config, int arch) {
  return config.cluster == 1 || arch_table()[static_cast<std::size_t>(arch)].number >= 90;
}

// Two launches pay for so few rows of so many accesses: measured on an H200 with 16 bytes each,
// docs/performance/norms.md.
constexpr std::int64_t kFewRows = 32;
constexpr std::int64_t kWideAccesses = 2049;

}  // namespace

std::string tile_name(const NormConfig& config) {
  std::string name = std::to_string(config.threads) + "x" + std::to_string(config.vectors);
  if (config.rows_per_block > 1) name += "x" + std::to_string(config.rows_per_block) + " rows";
  if (config.cluster > 1) name += " cluster " + std::to_string(config.cluster);
  return name;
}

std::string tile_name(const NormSplitConfig& config) {
  return std::to_string(config.threads) + "x" + std::to_string(config.vectors) + " split";
}

int residents_of(const NormConfig& config, int arch) {
  // For sm_100 and sm_120 ptxas spills one or two of 64 registers, which are all that so many CTAs
  // leave a thread. One CTA less leaves it 80 or more.
  constexpr int kRegisters = 65536, kSpilling = 64;
  const int number = arch_table()[static_cast<std::size_t>(arch)].number;
  const bool spills = number == 100 || number == 120;
  const int left = kRegisters / (config.threads * config.rows_per_block * config.residents) / 8 * 8;
  return spills && left <= kSpilling && config.residents > 1 ? config.residents - 1
                                                             : config.residents;
}

int stages_of(const NormConfig& config, const NormTraits& traits, int arch) {
  if (traits.vector * size_of(traits.input) != 16) return 0;
  const Arch& limits = arch_table()[static_cast<std::size_t>(arch)];
  const auto fits = [&](int stages) {
    const int bytes = norm_shared_bytes(stages, config.vectors,
                                        config.threads * config.rows_per_block, traits.residual);
    return bytes <= limits.shared_bytes &&
           residents_of(config, arch) * (bytes + 1024) <= limits.shared_bytes_per_sm;
  };
  int stages = config.stages;
  while (stages > 0 && !fits(stages)) --stages;
  return stages;
}

int shared_bytes(const NormConfig& config, const NormTraits& traits, int arch) {
  return norm_shared_bytes(stages_of(config, traits, arch), config.vectors,
                           config.threads * config.rows_per_block, traits.residual);
}

std::vector<int> norm_rows(int arch) {
  std::vector<int> rows;
  for (int row = 0; row < static_cast<int>(norm_configs().size()); ++row) {
    if (serves(config_at(row), arch)) rows.push_back(row);
  }
  return rows;
}

std::vector<int> norm_split_rows() {
  std::vector<int> rows;
  for (int row = 0; row < static_cast<int>(norm_split_configs(1).size()); ++row)
    rows.push_back(row);
  return rows;
}

NormChoice choose_norm(const NormTraits& traits, int arch, std::int64_t rows, std::int64_t columns,
                       bool may_split) {
  const std::int64_t accesses = (columns + traits.vector - 1) / traits.vector;
  const bool is_vectors = traits.vector * size_of(traits.input) == 16;
  NormChoice choice;
  for (int row = 0; row < static_cast<int>(norm_configs().size()) && choice.row < 0; ++row) {
    const NormConfig& config = config_at(row);
    if (serves(config, arch) && accesses <= config.accesses()) choice.row = row;
  }
  const bool is_few = rows <= kFewRows && accesses >= kWideAccesses && is_vectors;
  if (may_split && (choice.row < 0 || is_few)) choice.split_row = 0;
  return choice;
}

namespace {

const Family& family_of(const NormProblem& problem) {
  return problem.traits.kind == NormKind::rms ? kRmsNorm : kLayerNorm;
}

// With stages, as many CTAs as the device holds at once, which go from row to row.
long long blocks_of(const NormProblem& problem, const NormConfig& config, int arch, int sm_count) {
  const long long all = norm_blocks(problem.rows, config.rows_per_block, config.cluster);
  if (stages_of(config, problem.traits, arch) == 0) return all;
  const int residents = residents_of(config, arch);
  const long long held = config.cluster == 1
                             ? static_cast<long long>(residents) * sm_count
                             : static_cast<long long>(config.cluster) *
                                   clusters_at_once(config.cluster, residents, sm_count);
  return std::min(all, held);
}

void resolve_whole(NormProblem& problem, int arch, int row, int sm_count) {
  const NormConfig& config = config_at(row);
  Step& step = problem.recipe.first();
  step.spec = Specialization(norm_template(family_of(problem), NormTemplate::whole), arch, row,
                             problem.traits);
  step.blocks = grid_of(blocks_of(problem, config, arch, sm_count));
  step.cluster = static_cast<unsigned>(config.cluster);
}

// The statistics of each part of each row, then its results.
void resolve_split(NormProblem& problem, int arch, int row) {
  const NormSplitConfig& config = split_at(row);
  const int splits = norm_splits(problem.columns, config.accesses() * problem.traits.vector);
  const auto bytes = static_cast<std::size_t>(norm_workspace_bytes(problem.rows, splits));
  Step& first = problem.recipe.first();
  first.blocks = grid_of(static_cast<long long>(problem.rows) * splits);
  first.splits = splits;
  first.arguments.set_int(offsetof(NormParams, splits), splits);
  first.arguments.want_workspace(offsetof(NormParams, workspace), 0, bytes);
  problem.recipe.workspace_bytes = bytes;
  Step& second = problem.recipe.add();
  second = first;
  const Family& family = family_of(problem);
  first.spec =
      Specialization(norm_template(family, NormTemplate::partial), arch, row, problem.traits);
  second.spec =
      Specialization(norm_template(family, NormTemplate::apply), arch, row, problem.traits);
  second.programmatic = may_overlap(arch);
}

}  // namespace

void resolve(NormProblem& problem, const runtime::Device& device, bool may_split) {
  const int arch = arch_of(device);
  const NormChoice choice =
      choose_norm(problem.traits, arch, problem.rows, problem.columns, may_split);
  if (choice.split_row >= 0) return resolve_split(problem, arch, choice.split_row);
  if (choice.row < 0) {
    throw_value({problem.op, "x"},
                "has " + std::to_string(problem.columns) +
                    " columns, which this device computes in two launches that need a workspace: "
                    "give options.workspace");
  }
  resolve_whole(problem, arch, choice.row, device.info().sm_count);
}

double flops_of(const NormProblem& problem) {
  constexpr double kOperations = 10;  // of an element: sums, squares, products, conversions
  return kOperations * problem.rows * problem.columns;
}

}  // namespace kiln
