#include "jit/tools/explain.h"

#include "jit/compile/engine.h"
#include "jit/compile/kernel_source.h"
#include "jit/op/blocking.h"
#include "jit/op/tuning.h"
#include "jit/tools/reasons.h"
#include "jit/tools/spec.h"

namespace kiln {
namespace {

using nlohmann::json;

json layer_of(const Specialization& spec, const KernelSource& source,
              const runtime::Device& device) {
  if (is_resident(spec, device)) return "memory";
  auto hit = disk_cache().get(source.key, cache::Payload::kCubin);
  if (!hit && device.info().kind != runtime::DeviceKind::cuda) {
    hit = disk_cache().get(emulated_source(source).key, cache::Payload::kCubin);
  }
  if (hit) return disk_cache().layer_root(hit->layer).string();
  return nullptr;
}

json explain_step(const Step& step, const UserTexts& texts, const runtime::Device& device) {
  const Specialization& spec = step.spec;
  const KernelSource source = source_of(spec, texts);
  return {{"path", spec.kernel().path},
          {"template", spec.kernel().file},
          {"what", source.what},
          {"config", spec.kernel().tile(spec.row())},
          {"splits", step.splits},
          {"whole_tiles", step.whole_tiles},
          {"spec", spec_to_json(spec, texts)},
          {"key", source.key.hex()},
          {"arch", source.arch},
          {"layer", layer_of(spec, source, device)}};
}

}  // namespace

std::string tuned_tile_note(const std::string& measured_at) {
  const TuningTable* table = tuning_table();
  return "tile of the tuning table" + (table ? " " + table->path() : "") +
         ": the fastest measured at " + measured_at;
}

std::string explain_nothing(const char* op) {
  return json{{"op", op}, {"path", "none"}, {"why", {"the output is empty: nothing runs"}}}.dump();
}

std::string explain_recipe(const ExplainedCall& call, const Recipe& recipe, const UserTexts& texts,
                           const runtime::Device& device) {
  const BlockingScope blocking;
  json result = explain_step(recipe.first(), texts, device);
  json reasons = reasons_of(recipe.first().spec, call.path_note);
  if (!call.note.empty()) reasons.push_back(call.note);
  const Family& family = *recipe.first().spec.kernel().family;
  const std::string of_texts = family.note != nullptr ? family.note(texts) : "";
  if (!of_texts.empty()) reasons.push_back(of_texts);
  result["op"] = call.op;
  result["device"] = device.info().name;
  result["workspace_bytes"] = recipe.workspace_bytes;
  result["why"] = reasons;
  if (recipe.steps().size() > 1) {
    json launches = json::array();
    for (const bool prepares : {true, false}) {  // in the order of launch_steps()
      for (const Step& step : recipe.steps()) {
        if (step.prepares == prepares) launches.push_back(explain_step(step, texts, device));
      }
    }
    result["launches"] = launches;
  }
  return result.dump(-1, ' ', false,
                     json::error_handler_t::replace);  // "layer" and "why" have paths
}

}  // namespace kiln
