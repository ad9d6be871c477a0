// Statistics and diagnosis as JSON. The cache's reports are in cache_reports.cpp.
#include <nlohmann/json.hpp>

#include "jit/compile/engine.h"
#include "jit/compile/kernel_source.h"
#include "jit/compile/policy.h"
#include "jit/compile/settings.h"
#include "jit/compile/statistics.h"
#include "jit/op/arch.h"
#include "jit/op/blocking.h"
#include "jit/op/device_choice.h"
#include "jit/tools/cache_reports.h"
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
  json report{{"ordinal", ordinal},
              {"name", info.name},
              {"compute_capability",
               std::to_string(info.compute_major) + "." + std::to_string(info.compute_minor)},
              {"sm_count", info.sm_count},
              {"shared_bytes_per_block", info.shared_bytes_per_block},
              {"memory_bytes", info.memory_bytes}};
  try {
    (void)arch_index({info.compute_major, info.compute_minor});
  } catch (const std::invalid_argument& error) {
    report["problem"] = error.what();
  }
  return report;
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

// Which device would compute calls on NumPy arrays and on CPU tensors (null = refused), and why.
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

}  // namespace

Statistics& statistics() {
  static Statistics instance;
  return instance;
}

std::string version() { return KILN_VERSION; }

std::string stats() {
  const Statistics& s = statistics();
  const std::size_t layers = disk_cache().layer_count();
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
                {"handles_signals", nvrtc.handles_signals},
                {"passed_over", nvrtc.passed_over},
                {"problem", nvrtc.problem}}},
              {"devices", devices_report()},
              {"device", choice_report()},
              {"cache", {{"layers", layers_report()}, {"max_bytes", s.cache_max_bytes}}},
              {"environment",
               {{"KILN_JIT", name(jit_mode())},
                {"KILN_TEMPLATE_DIR", s.template_dir},
                {"KILN_NVRTC", s.nvrtc},
                {"CUDA_HOME", s.cuda_home},
                {"KILN_TUNING", s.tuning},
                {"KILN_RECORD", s.record.string()}}}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace kiln
