// What a call would run and what a kernel is made of, as JSON.
#include <algorithm>
#include <iterator>

#include "jit/arch.h"
#include "jit/blocking.h"
#include "jit/calls.h"
#include "jit/config.h"
#include "jit/gemm_tuning.h"
#include "jit/kernel_source.h"
#include "jit/sdpa.h"
#include "jit/spec_json.h"
#include "kiln/control.h"

namespace kiln {
namespace {

using nlohmann::json;

std::string_view reason_of(const Specialization& spec) {
  const std::size_t row = static_cast<std::size_t>(spec.row());
  return spec.family() == Family::attention ? attention_configs()[row].reason
                                            : gemm_configs()[row].reason;
}

std::string tile_of(const Specialization& spec) {
  const std::size_t row = static_cast<std::size_t>(spec.row());
  return spec.family() == Family::attention ? tile_name(attention_configs()[row])
                                            : tile_name(gemm_configs()[row]);
}

const char* path_of(const Specialization& spec) {
  return is_sm90_gemm(spec) ? "sm_90a" : "portable";
}

const char* template_of(const Specialization& spec) {
  if (spec.family() == Family::attention) return "attention/flash_attention.cuh";
  return is_sm90_gemm(spec) ? "gemm/sm90/gemm.cuh" : "gemm/gemm.cuh";
}

// `k` of a GEMM.
std::string path_reason(const Specialization& spec, std::int64_t k) {
  if (is_sm90_gemm(spec)) return "sm_90a path (wgmma, tensor memory accelerator)";
  const std::string portable = "portable path (mma.sync, cp.async): ";
  if (spec.family() == Family::attention) return portable + "attention has no other yet";
  const std::string reason = why_not_sm90(spec.gemm(), spec.arch(), k);
  return portable + (reason.empty() ? "its tiles suit this problem better" : reason);
}

json why(const Specialization& spec, std::int64_t k) {
  json reasons{path_reason(spec, k), "tile " + tile_of(spec) + ": " + std::string(reason_of(spec))};
  if (spec.family() == Family::attention && !spec.attention().aligned) {
    reasons.push_back(
        "element-wise loads: a base is not 16-byte aligned or a stride is not a "
        "multiple of 8 elements");
  }
  if (spec.family() == Family::gemm && spec.gemm().loads == Access::elements) {
    reasons.push_back("element-wise loads: a or b is not 16-byte aligned in base or strides");
  }
  return reasons;
}

json layer_of(const Specialization& spec, const cache::Key& key, const runtime::Device& device) {
  if (is_resident(spec, device)) return "memory";
  if (auto hit = disk_cache().get(key, cache::Payload::kCubin))
    return disk_cache().layers().at(hit->layer).path.string();
  return nullptr;
}

std::string measured_reason(std::int64_t m) {
  const GemmTuning* tuning = gemm_tuning();
  return "tile of the tuning table" + (tuning ? " " + tuning->path() : "") +
         ": the fastest measured at M = " + std::to_string(m);
}

std::int64_t depth_of(const AttentionProblem&) { return 0; }
std::int64_t depth_of(const GemmProblem& problem) { return problem.k; }

template <class Problem>
std::string explain(const Problem& problem, const char* op, bool may_split = true) {
  const BlockingScope blocking;
  if (problem.empty()) {
    return json{{"op", op}, {"path", "none"}, {"why", {"the output is empty: nothing runs"}}}
        .dump();
  }
  runtime::Device& device = device_of(problem.device_ordinal);
  const LaunchChoice choice = choose(problem, device, may_split);
  const Specialization& spec = choice.spec;
  const KernelSource source = source_of(spec, texts_of(problem));
  json reasons = why(spec, depth_of(problem));
  if (choice.measured_m > 0) reasons.push_back(measured_reason(choice.measured_m));
  return json{{"op", op},
              {"path", path_of(spec)},
              {"device", device.info().name},
              {"template", template_of(spec)},
              {"what", source.what},
              {"config", tile_of(spec)},
              {"splits", choice.splits},
              {"whole_tiles", choice.whole_tiles},
              {"workspace_bytes", choice.workspace_bytes},
              {"spec", spec_to_json(spec, texts_of(problem))},
              {"key", source.key.hex()},
              {"arch", source.arch},
              {"layer", layer_of(spec, source.key, device)},
              {"why", reasons}}
      .dump(-1, ' ', false, json::error_handler_t::replace);  // "layer" and "why" have paths
}

json inspect_one(const OwnedSpec& owned, std::vector<std::string>* cubins) {
  const KernelSource source = source_of(owned.spec, owned.texts());
  auto hit = disk_cache().get(source.key);
  const cache::Entry entry = hit ? hit->entry : compile_entry(source, "inspect");
  if (!hit) disk_cache().put(source.key, entry);
  json result = entry.description;
  result["what"] = source.what;
  result["spec"] = spec_to_json(owned.spec, owned.texts());
  result["path"] = path_of(owned.spec);
  result["why"] = why(owned.spec, 1);
  result["config"] = tile_of(owned.spec);
  result["key"] = source.key.hex();
  result["cached"] = hit.has_value();
  result["threads"] = threads_of(owned.spec);
  result["dynamic_shared_bytes"] = dynamic_shared_bytes_of(owned.spec);
  result["cubin_bytes"] = entry.cubin.size();
  result["source"] = source.source;
  result["ptx"] = entry.ptx;
  if (cubins != nullptr) cubins->push_back(entry.cubin);
  return result;
}

// As a GemmTile takes them; with `splits`, a row's CTAs that share K.
json config_json(const GemmConfig& config, int splits) {
  json tile{{"block_m", config.block_m},
            {"block_n", config.block_n},
            {"block_k", config.block_k},
            {"stages", config.stages}};
  if (config.is_sm90()) tile["cluster"] = config.sm90.cluster;
  if (splits > 0) tile["splits"] = splits;
  return tile;
}

}  // namespace

std::string explain_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                    const TensorView& out, const TensorView& lse,
                                    const AttentionOptions& options) {
  AttentionProblem problem;
  problem.may_be_null = true;
  check_attention(q, k, v, out, lse, options, problem);
  return explain(problem, "flash_attention");
}

std::string explain_scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                                 const TensorView& value,
                                                 const TensorView& attn_mask, const TensorView& out,
                                                 const SdpaOptions& options) {
  const SdpaCall call = check_sdpa(query, key, value, attn_mask, out, options);
  AttentionProblem problem;
  problem.may_be_null = true;
  problem.names = kSdpaNames;
  check_attention(call.query, call.key, call.value, call.out, {}, call.options, problem);
  return explain(problem, kSdpaNames.op, /*may_split=*/call.slices == 1);
}

std::string explain_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                         const GemmOptions& options) {
  GemmProblem problem;
  problem.may_be_null = true;
  check_gemm(a, b, out, options, problem);
  return explain(problem, "gemm");
}

std::string list_gemm_configs(const std::string& spec, const std::string& arch, std::int64_t k) {
  std::vector<OwnedSpec> kernels;
  for (const json& one : parse_specs(spec)) {
    std::ranges::move(specs_from_json(one, arch_index(parse_arch(arch))),
                      std::back_inserter(kernels));
  }
  const auto is_sm90 = [](const OwnedSpec& owned) { return is_sm90_gemm(owned.spec); };
  const bool sm90 = std::ranges::any_of(kernels, is_sm90);  // then the portable row is for K = 0
  json configs = json::array();
  for (const OwnedSpec& owned : kernels) {
    if (owned.spec.family() != Family::gemm) {
      throw std::invalid_argument("gemm_configs: op must be gemm");
    }
    if (is_sm90(owned) != sm90) continue;
    const GemmConfig& config = gemm_configs()[static_cast<std::size_t>(owned.spec.row())];
    if (!config.sm90.splits) {
      configs.push_back(config_json(config, 0));
      continue;
    }
    const std::int64_t k_tiles = (k + config.block_k - 1) / config.block_k;
    const std::int64_t most = k > 0 ? std::min<std::int64_t>(kMostCluster, k_tiles) : kMostCluster;
    for (int splits = 1; splits <= most; ++splits) configs.push_back(config_json(config, splits));
  }
  return configs.dump();
}

std::string inspect(const std::string& spec, const std::string& arch,
                    std::vector<std::string>* cubins) {
  const BlockingScope blocking;
  json kernels = json::array();
  for (const json& one : parse_specs(spec)) {
    for (const OwnedSpec& owned : specs_from_json(one, arch_index(parse_arch(arch)))) {
      kernels.push_back(inspect_one(owned, cubins));
    }
  }
  return kernels.dump();
}

}  // namespace kiln
