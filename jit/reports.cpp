// Statistics, diagnosis and the cache's tools, as JSON.
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "jit/blocking.h"
#include "jit/compile_policy.h"
#include "jit/device_choice.h"
#include "jit/engine.h"
#include "jit/kernel_source.h"
#include "jit/settings.h"
#include "jit/statistics.h"
#include "kiln/control.h"
#include "runtime/cuda/cuda_device.h"

namespace kiln {
namespace {

using nlohmann::json;

const char* name(JitMode mode) {
  return mode == JitMode::automatic ? "auto" : mode == JitMode::warn ? "warn" : "off";
}

json device_report(int ordinal) {
  const runtime::DeviceInfo& info = runtime::cuda_device(ordinal).info();
  return {{"ordinal", ordinal},
          {"name", info.name},
          {"compute_capability",
           std::to_string(info.compute_major) + "." + std::to_string(info.compute_minor)},
          {"sm_count", info.sm_count},
          {"shared_bytes_per_block", info.shared_bytes_per_block},
          {"memory_bytes", info.memory_bytes}};
}

json devices_report() {
  json devices = json::array();
  for (int i = 0; i < runtime::cuda_status().device_count; ++i) {
    try {
      devices.push_back(device_report(i));
    } catch (const std::exception& error) {
      devices.push_back({{"ordinal", i}, {"problem", error.what()}});
    }
  }
  return devices;
}

// What calls on NumPy arrays would run on, and on CPU tensors (null = refused), and why.
json choice_report() {
  json report{{"choice", device_choice().text},
              {"host_arrays", nullptr},
              {"cpu_tensors", nullptr},
              {"problem", ""}};
  try {
    if (emulates_host_tensors()) {
      report["host_arrays"] = report["cpu_tensors"] = chosen_emulator().info().name;
    } else {
      report["host_arrays"] = runtime::cuda_device(host_tensor_ordinal()).info().name;
    }
  } catch (const std::exception& error) {
    report["problem"] = error.what();
  }
  return report;
}

json layers_report() {
  json layers = json::array();
  for (const cache::LayerInfo& layer : disk_cache().layers()) {
    layers.push_back({{"path", layer.path.string()},
                      {"writable", layer.writable},
                      {"usable", layer.usable},
                      {"verdict", layer.verdict},
                      {"owner", layer.owner},
                      {"mode", layer.mode},
                      {"entries", layer.entries},
                      {"bytes", layer.bytes}});
  }
  return layers;
}

// Paths may hold bytes that are no UTF-8; a report with a replacement character beats none.
std::string text_of(const json& report) {
  return report.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string text_of(const cache::Pruned& pruned) {
  return text_of(
      json{{"removed", pruned.removed}, {"failed", pruned.failed}, {"problem", pruned.problem}});
}

// The numbers of a dotted version, without zeros at the end, so that 13 equals 13.0; none when the
// text is no version.
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

Statistics& statistics() {
  static Statistics instance;
  return instance;
}

std::string version() { return KILN_VERSION; }

std::string stats() {
  const Statistics& s = statistics();
  const std::size_t layers = disk_cache().layers().size();
  json disk = json::array();
  for (std::size_t i = 0; i < std::min(layers, Statistics::kMaxLayers); ++i) {
    disk.push_back(s.disk_hits[i].load());
  }
  return text_of(json{{"memory_hits", s.memory_hits.load()},
                      {"disk_hits", disk},
                      {"misses", s.misses.load()},
                      {"compiles", s.compiles.load()},
                      {"compile_seconds", static_cast<double>(s.compile_nanoseconds.load()) * 1e-9},
                      {"load_seconds", static_cast<double>(s.load_nanoseconds.load()) * 1e-9},
                      {"nvrtc_loaded", nvrtc_is_loaded()},
                      {"kernels_resident", resident_count()}});
}

void reset_stats() {
  Statistics& s = statistics();
  for (auto* counter :
       {&s.memory_hits, &s.misses, &s.compiles, &s.compile_nanoseconds, &s.load_nanoseconds}) {
    counter->store(0);
  }
  for (auto& counter : s.disk_hits) counter.store(0);
}

std::string diagnose() {
  const BlockingScope blocking;
  const runtime::CudaStatus& driver = runtime::cuda_status();
  prepare_nvrtc();
  const NvrtcInfo nvrtc = nvrtc_info(true);
  const Settings& s = settings();
  return json{{"version", version()},
              {"driver",
               {{"found", driver.driver_found},
                {"version", driver.driver_version},
                {"path", driver.driver_path},
                {"problem", driver.problem}}},
              {"nvrtc",
               {{"loaded", nvrtc.loaded},
                {"path", nvrtc.path},
                {"how", nvrtc.how},
                {"version", nvrtc.version},
                {"build", nvrtc.build},
                {"archs", nvrtc.archs},
                {"problem", nvrtc.problem}}},
              {"devices", devices_report()},
              {"device", choice_report()},
              {"cache", {{"layers", layers_report()}, {"max_bytes", s.cache_max_bytes}}},
              {"environment",
               {{"KILN_JIT", name(jit_mode())},
                {"KILN_TEMPLATE_DIR", s.template_dir},
                {"KILN_NVRTC", s.nvrtc},
                {"KILN_TUNING", s.tuning}}}}
      .dump(-1, ' ', false, json::error_handler_t::replace);  // as text_of
}

std::string cache_info() { return text_of(json{{"layers", layers_report()}}); }

std::string cache_list() {
  json entries = json::array();
  for (const cache::EntryInfo& entry : disk_cache().list()) {
    entries.push_back({{"key", entry.key.hex()},
                       {"path", entry.path.string()},
                       {"layer", entry.layer},
                       {"what", entry.description.value("what", "")},
                       {"arch", entry.description.value("arch", "")},
                       {"nvrtc_version", entry.description.value("nvrtc_version", "")},
                       {"bytes", entry.bytes},
                       {"pinned", entry.pinned},
                       {"last_used", entry.last_used}});
  }
  return text_of(entries);
}

std::string cache_verify() {
  json faults = json::array();
  const auto results = disk_cache().verify();
  for (const cache::VerifyResult& result : results) {
    if (result.fault.empty()) continue;
    faults.push_back(
        {{"key", result.key.hex()}, {"path", result.path.string()}, {"fault", result.fault}});
  }
  for (const cache::LayerInfo& layer : disk_cache().layers()) {
    if (layer.usable) continue;  // nothing in it was read
    faults.push_back({{"key", ""}, {"path", layer.path.string()}, {"fault", layer.verdict}});
  }
  return text_of(json{{"checked", results.size()}, {"faults", faults}});
}

std::string cache_clear() { return text_of(disk_cache().clear()); }

std::string cache_prune(std::uint64_t max_bytes, const std::string& older_than_nvrtc) {
  if (older_than_nvrtc.empty()) return text_of(disk_cache().prune(max_bytes));
  const auto limit = parse_version(older_than_nvrtc);
  if (!limit) {
    throw std::invalid_argument("cache prune: the NVRTC version must be like 13.0, got '" +
                                older_than_nvrtc + "'");
  }
  return text_of(disk_cache().prune(max_bytes, [&](const cache::EntryInfo& entry) {
    const auto version = parse_version(entry.description.value("nvrtc_version", ""));
    return version && *version < *limit;  // an entry that does not tell is not known to be old
  }));
}

}  // namespace kiln
