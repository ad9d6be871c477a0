// The cache's tools, and their reports as JSON.
#include "jit/tools/cache_reports.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "jit/compile/kernel_source.h"
#include "jit/op/json_text.h"
#include "kiln/control.h"

namespace kiln {
namespace {

using nlohmann::json;

// The mode in the form of chmod: "0755".
std::string octal(unsigned mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%04o", mode);
  return text.data();
}

json entry_report(const cache::EntryInfo& entry) {
  return {{"key", entry.key.hex()},
          {"path", entry.path.string()},
          {"layer", entry.layer},
          {"what", string_or_empty(entry.description, "what")},
          {"arch", string_or_empty(entry.description, "arch")},
          {"nvrtc_version", string_or_empty(entry.description, "nvrtc_version")},
          {"bytes", entry.bytes},
          {"pinned", entry.pinned},
          {"last_used", entry.last_used}};
}

json entries_report(const std::vector<cache::EntryInfo>& entries) {
  json report = json::array();
  for (const cache::EntryInfo& entry : entries) report.push_back(entry_report(entry));
  return report;
}

std::string removal_report(const cache::Pruned& pruned) {
  std::uint64_t bytes = 0;
  for (const cache::EntryInfo& entry : pruned.removed) bytes += entry.bytes;
  return text_of(json{{"removed", pruned.removed.size()},
                      {"bytes", bytes},
                      {"failed", pruned.failed},
                      {"in_use", pruned.in_use},
                      {"kept_pinned", pruned.kept_pinned},
                      {"problem", pruned.problem},
                      {"entries", entries_report(pruned.removed)}});
}

// The numbers of a dotted version, without zeros at the end, so that 13 equals 13.0. Empty if the
// text is not a version.
std::optional<std::vector<int>> parse_version(std::string_view text) {
  std::vector<int> parts;
  for (const char *at = text.data(), *end = at + text.size();;) {
    int part = 0;
    const auto [next, error] = std::from_chars(at, end, part);
    if (error != std::errc{} || part < 0 || *at == '-') return std::nullopt;
    parts.push_back(part);
    if (next == end) break;
    if (*next != '.') return std::nullopt;
    at = next + 1;
  }
  while (!parts.empty() && parts.back() == 0) parts.pop_back();
  return parts;
}

}  // namespace

nlohmann::json layers_report() {
  json layers = json::array();
  for (const cache::LayerInfo& layer : disk_cache().layers()) {
    layers.push_back({{"path", layer.path.string()},
                      {"writable", layer.writable},
                      {"usable", layer.usable},
                      {"verdict", layer.verdict},
                      {"advice", layer.advice},
                      {"warning", layer.warning},
                      {"owner", layer.owner},
                      {"mode", octal(layer.mode)},
                      {"entries", layer.entries},
                      {"bytes", layer.bytes}});
  }
  return layers;
}

std::string text_of(const json& report) {
  return report.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string cache_info() { return text_of(json{{"layers", layers_report()}}); }

std::string cache_list() { return text_of(entries_report(disk_cache().list())); }

std::string cache_verify() {
  json faults = json::array();
  const auto results = disk_cache().verify();
  for (const cache::VerifyResult& result : results) {
    if (result.fault.empty()) continue;
    faults.push_back(
        {{"key", result.key.hex()}, {"path", result.path.string()}, {"fault", result.fault}});
  }
  for (const cache::LayerInfo& layer : disk_cache().layers()) {
    if (layer.usable) continue;  // nothing was read from this layer
    faults.push_back({{"key", ""}, {"path", layer.path.string()}, {"fault", layer.verdict}});
  }
  return text_of(json{{"checked", results.size()}, {"faults", faults}});
}

std::string cache_clear() { return removal_report(disk_cache().clear()); }

std::string cache_prune(const CachePruning& limits) {
  cache::PruneOptions options{.max_bytes = limits.max_bytes,
                              .unused_since = limits.unused_since,
                              .dry_run = limits.dry_run};
  if (!limits.older_than_nvrtc.empty()) {
    const auto oldest = parse_version(limits.older_than_nvrtc);
    if (!oldest) {
      throw std::invalid_argument("cache prune: the NVRTC version must be like 13.0, got '" +
                                  limits.older_than_nvrtc + "'");
    }
    options.expired = [oldest](const cache::EntryInfo& entry) {
      const auto version = parse_version(string_or_empty(entry.description, "nvrtc_version"));
      return version && *version < *oldest;  // an entry without a version is not known to be old
    };
  }
  return removal_report(disk_cache().prune(options));
}

}  // namespace kiln
