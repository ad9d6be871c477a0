// The tiles of GEMM as a caller may name them, and the table of measured ones.
#include <algorithm>
#include <iterator>

#include "jit/gemm/config.h"
#include "jit/gemm/family.h"
#include "jit/op/arch.h"
#include "jit/tools/spec.h"
#include "kiln/gemm.h"

namespace kiln {
namespace {

using nlohmann::json;

// As a GemmTile takes them.
template <class Config>
json tile_of(const Config& config) {
  return {{"block_m", config.block_m},
          {"block_n", config.block_n},
          {"block_k", config.block_k},
          {"stages", config.stages}};
}

void append_sm90(const GemmSm90Config& config, std::int64_t k, json& configs) {
  json tile = tile_of(config);
  tile["cluster"] = config.cluster;
  if (!config.splits) {
    configs.push_back(tile);
    return;
  }
  const std::int64_t k_tiles = (k + config.block_k - 1) / config.block_k;
  const std::int64_t parts = most_splits(config);
  const std::int64_t most = k > 0 ? std::min(parts, k_tiles) : parts;
  for (int splits = config.apart ? 2 : 1; splits <= most; ++splits) {
    tile["splits"] = splits;
    configs.push_back(tile);
  }
}

}  // namespace

std::string list_gemm_configs(const std::string& spec, const std::string& arch, std::int64_t k) {
  std::vector<OwnedSpec> kernels;
  for (const json& one : parse_specs(spec)) {
    std::ranges::move(specs_from_json(one, arch_index(parse_arch(arch))),
                      std::back_inserter(kernels));
  }
  const auto row_of = [](const OwnedSpec& owned) {
    return GemmRow{&owned.spec.kernel(), owned.spec.row()};
  };
  // Where sm_90a rows serve, the portable row is for K = 0.
  const bool sm90 =
      std::ranges::any_of(kernels, [&](const OwnedSpec& owned) { return row_of(owned).is_sm90(); });
  json configs = json::array();
  for (const OwnedSpec& owned : kernels) {
    if (owned.spec.kernel().family != &kGemm) {
      throw std::invalid_argument("gemm_configs: op must be gemm");
    }
    const GemmRow row = row_of(owned);
    if (row.is_sm90() != sm90) continue;
    if (sm90) {
      append_sm90(row.sm90(), k, configs);
    } else {
      configs.push_back(tile_of(row.portable()));
    }
  }
  return configs.dump();
}

}  // namespace kiln
