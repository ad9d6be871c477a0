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

// Returns what is known of a kernel before it is compiled.
json facts_of(const OwnedSpec& owned, const KernelSource& source) {
  const Footprint footprint = owned.spec.kernel().footprint(owned.spec);
  return {{"what", source.what},
          {"spec", spec_to_json(owned.spec, owned.texts())},
          {"path", owned.spec.kernel().path},
          {"why", reasons_of(owned.spec)},
          {"config", owned.spec.kernel().tile(owned.spec.row())},
          {"key", source.key.hex()},
          {"threads", footprint.threads},
          {"dynamic_shared_bytes", footprint.dynamic_shared_bytes},
          {"source", source.source}};
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
  result.update(facts_of(owned, source));
  result["cached"] = hit.has_value();
  result["cubin_bytes"] = entry.cubin.size();
  result["ptx"] = entry.ptx;
  if (cubins != nullptr) cubins->push_back(entry.cubin);
  return result;
}

// Returns the facts that `of` tells of each kernel of a spec, as an array.
template <class Facts>
std::string facts_of_each(const std::string& spec, const std::string& arch, const Facts& of) {
  const BlockingScope blocking;
  json kernels = json::array();
  for (const json& one : parse_specs(spec)) {
    for (const OwnedSpec& owned : specs_from_json(one, arch_index(parse_arch(arch)))) {
      kernels.push_back(of(owned));
    }
  }
  return kernels.dump();
}

}  // namespace

std::string inspect(const std::string& spec, const std::string& arch,
                    std::vector<std::string>* cubins) {
  return facts_of_each(spec, arch,
                       [&](const OwnedSpec& owned) { return inspect_one(owned, cubins); });
}

std::string inspect_source(const std::string& spec, const std::string& arch) {
  return facts_of_each(spec, arch, [](const OwnedSpec& owned) {
    return facts_of(owned, source_of(owned.spec, owned.texts()));
  });
}

}  // namespace kiln
