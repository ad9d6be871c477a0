#include "jit/tools/reasons.h"

namespace kiln {
namespace {

// Why an arch's own template does not serve it, or the call's own reason if it could.
std::string path_reason(const Specialization& spec, const std::string& note) {
  const Template& kernel = spec.kernel();
  const Family& family = *kernel.family;
  const std::string path = std::string(kernel.path) + " path (" + kernel.means + ")";
  if (kernel.arch_specific) return path;  // this template needs more than the others
  if (family.templates.size() == 1) return path + ": " + family.title + " has no other yet";
  for (const Template& other : family.templates) {
    if (!other.arch_specific) continue;
    const std::string reason = other.why_not(spec.traits(), spec.arch());
    if (!reason.empty()) return path + ": " + reason;
  }
  return path + ": " + (note.empty() ? "its tiles suit this problem better" : note);
}

}  // namespace

nlohmann::json reasons_of(const Specialization& spec, const std::string& path_note) {
  const Template& kernel = spec.kernel();
  nlohmann::json reasons{path_reason(spec, path_note), "tile " + kernel.tile(spec.row()) + ": " +
                                                           std::string(kernel.reason(spec.row()))};
  for (const Field& field : kernel.family->fields) {
    if (field.unset_reason[0] == '\0' || byte_at(spec.traits().data(), field) != 0) continue;
    reasons.push_back(field.unset_reason);
  }
  return reasons;
}

}  // namespace kiln
