// Tells as JSON what a kernel is made of.
#include "jit/compile/compile_events.h"
#include "jit/compile/kernel_source.h"
#include "jit/op/arch.h"
#include "jit/op/blocking.h"
#include "jit/tools/reasons.h"
#include "jit/tools/spec.h"
#include "kiln/control.h"

namespace kiln {
namespace {

using nlohmann::json;

// Whether a description has the fields that a compile writes, in their types: whoever may write a
// cache folder may have sealed another one.
bool is_complete(const json& description) {
  const auto is = [&](const char* field, bool (json::*type)() const noexcept) {
    const auto at = description.find(field);
    return at != description.end() && ((*at).*type)();
  };
  for (const char* field : {"arch", "nvrtc_version", "nvrtc_build", "min_driver"}) {
    if (!is(field, &json::is_string)) return false;
  }
  for (const char* field : {"registers", "shared_bytes", "spill_bytes", "local_bytes"}) {
    if (!is(field, &json::is_number_integer)) return false;
  }
  return is("warnings", &json::is_array) && is("compile_seconds", &json::is_number);
}

json inspect_one(const OwnedSpec& owned, std::vector<std::string>* cubins) {
  const CompileEventScope events;
  const KernelSource source = source_of(owned.spec, owned.texts());
  auto hit = disk_cache().get(source.key);
  if (hit && !is_complete(hit->entry.description)) hit.reset();
  const cache::Entry entry =
      hit ? hit->entry
          : compile_and_note(owned.spec, owned.texts(), source, "inspect", Asker::tool);
  if (!hit) disk_cache().put(source.key, entry);
  json result = entry.description;
  result["what"] = source.what;
  result["spec"] = spec_to_json(owned.spec, owned.texts());
  result["path"] = owned.spec.kernel().path;
  result["why"] = reasons_of(owned.spec);
  result["config"] = owned.spec.kernel().tile(owned.spec.row());
  result["key"] = source.key.hex();
  result["cached"] = hit.has_value();
  const Footprint footprint = owned.spec.kernel().footprint(owned.spec);
  result["threads"] = footprint.threads;
  result["dynamic_shared_bytes"] = footprint.dynamic_shared_bytes;
  result["cubin_bytes"] = entry.cubin.size();
  result["source"] = source.source;
  result["ptx"] = entry.ptx;
  if (cubins != nullptr) cubins->push_back(entry.cubin);
  return result;
}

}  // namespace

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
