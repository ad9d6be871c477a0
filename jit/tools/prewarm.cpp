// Compiles the kernels of specs into the cache, on every core, without tensors and without a
// device.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "jit/compile/compile_events.h"
#include "jit/compile/kernel_source.h"
#include "jit/compile/settings.h"
#include "jit/op/arch.h"
#include "jit/op/blocking.h"
#include "jit/op/device_choice.h"
#include "jit/op/launch.h"
#include "jit/tools/spec.h"
#include "kiln/control.h"
#include "runtime/cuda/cuda_device.h"

namespace kiln {
namespace {

using nlohmann::json;

struct Job {
  OwnedSpec spec;
  KernelSource source;
  std::string outcome = "cancelled";  // then "compiled", "cached", "missing" or "failed: …"
  double seconds = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<int> target_archs(const std::vector<std::string>& names) {
  std::vector<int> archs;
  for (const std::string& name : names) archs.push_back(arch_index(parse_arch(name)));
  if (names.empty() && device_choice().kind == DeviceChoice::Kind::emulator) {
    archs.push_back(arch_of(chosen_emulator()));
  } else if (names.empty()) {
    for (int i = 0; i < runtime::cuda_status().device_count; ++i) {
      archs.push_back(arch_of(device_of(i)));
    }
    if (archs.empty()) {
      throw std::invalid_argument(
          "prewarm: no arch was given and there is no GPU here; name an arch, for example "
          "sm_90a");
    }
  }
  std::sort(archs.begin(), archs.end());
  archs.erase(std::unique(archs.begin(), archs.end()), archs.end());
  return archs;
}

std::vector<Job> jobs_of(const std::string& specs, const std::vector<std::string>& arch_names) {
  std::vector<Job> jobs;
  std::vector<cache::Key> seen;
  for (int arch : target_archs(arch_names)) {
    for (const json& spec : parse_specs(specs)) {
      for (OwnedSpec& owned : specs_from_json(spec, arch)) {
        Job job;
        job.spec = std::move(owned);
        job.source = source_of(job.spec.spec, job.spec.texts());
        if (std::find(seen.begin(), seen.end(), job.source.key) != seen.end()) continue;
        seen.push_back(job.source.key);
        jobs.push_back(std::move(job));
      }
    }
  }
  return jobs;
}

// `pin`: an entry that a call compiled earlier is pinned, because it is now wanted.
bool is_cached(const cache::Key& key, bool pin) {
  if (!disk_cache().get(key)) return false;
  if (pin) disk_cache().pin(key);
  return true;
}

void run(Job& job, const PrewarmOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const CompileEventScope events;
  try {
    const cache::Key& key = job.source.key;
    if (!options.recompile && is_cached(key, /*pin=*/!options.check_only)) {
      job.outcome = "cached";
    } else if (options.check_only) {
      job.outcome = "missing";
    } else if (settings().cache_dir.empty()) {
      job.outcome =
          "failed: it is not compiled, because it could not be written to the cache: "
          "KILN_CACHE_DIR is empty; set it to a folder, or unset it";
    } else {
      const auto lock = disk_cache().lock(key, 5.0);
      if (!options.recompile && is_cached(key, /*pin=*/true)) {
        job.outcome = "cached";  // another process compiled it meanwhile
      } else {
        const cache::Entry entry =
            compile_and_note(job.spec.spec, job.spec.texts(), job.source, "prewarm", Asker::tool);
        job.outcome = disk_cache().put(key, entry, /*pinned=*/true)
                          ? "compiled"
                          : "failed: the compiled kernel could not be written to the cache";
      }
    }
  } catch (const std::exception& error) {
    job.outcome = std::string("failed: ") + error.what();
  }
  job.seconds = seconds_since(start);
}

void run_all(std::vector<Job>& jobs, const PrewarmOptions& options) {
  std::atomic<std::size_t> next{0};
  std::size_t done = 0;
  std::mutex progress_mutex;
  std::exception_ptr failure;  // the first one of the caller's functions
  const auto work_on_all = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      if (options.cancelled && options.cancelled()) return;
      run(jobs[i], options);
      std::lock_guard lock(progress_mutex);
      ++done;
      if (options.progress) {
        options.progress({done, jobs.size(), jobs[i].source.what + ", " + jobs[i].source.arch,
                          jobs[i].outcome, jobs[i].seconds});
      }
    }
  };
  const auto work = [&] {
    try {
      work_on_all();
    } catch (...) {
      const std::lock_guard lock(progress_mutex);
      if (!failure) failure = std::current_exception();
      next = jobs.size();  // the others end with the kernels under way
    }
  };
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t wanted = options.jobs > 0 ? static_cast<std::size_t>(options.jobs) : cores;
  {
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 1; i < std::min(wanted, jobs.size()); ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {
      // A limit of processes (ulimit -u, a container's): the threads that there are do it.
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

json report(const std::vector<Job>& jobs, double seconds) {
  json result{{"total", jobs.size()},
              {"seconds", seconds},
              {"kernels", json::array()},
              {"failed", json::array()}};
  for (const char* outcome : {"compiled", "cached", "missing"}) {
    result[outcome] = std::count_if(jobs.begin(), jobs.end(),
                                    [&](const Job& job) { return job.outcome == outcome; });
  }
  for (const Job& job : jobs) {
    result["kernels"].push_back({{"what", job.source.what},
                                 {"arch", job.source.arch},
                                 {"key", job.source.key.hex()},
                                 {"outcome", job.outcome},
                                 {"seconds", job.seconds},
                                 {"spec", spec_to_json(job.spec.spec, job.spec.texts())}});
    if (job.outcome.starts_with("failed: ")) {
      result["failed"].push_back({{"what", job.source.what}, {"error", job.outcome.substr(8)}});
    }
  }
  return result;
}

}  // namespace

std::string prewarm(const std::string& specs, const PrewarmOptions& options) {
  const BlockingScope blocking;
  const auto start = std::chrono::steady_clock::now();
  std::vector<Job> jobs = jobs_of(specs, options.archs);
  run_all(jobs, options);
  return report(jobs, seconds_since(start)).dump();
}

void preload(const std::string& spec, std::optional<int> device_ordinal) {
  const bool is_emulated = !device_ordinal && emulates_host_tensors();
  runtime::Device& device = is_emulated ? chosen_emulator() : device_of(device_ordinal.value_or(0));
  for (const json& one : parse_specs(spec)) {
    for (const OwnedSpec& owned : specs_from_json(one, arch_of(device))) {
      preload_kernel(owned.spec, owned.texts(), device);
    }
  }
}

std::string enumerate_specs(const std::string& arch) {
  json specs = json::array();
  for (const Specialization& spec : all_samples(arch_index(parse_arch(arch)))) {
    specs.push_back(spec_to_json(spec, {}));
  }
  return specs.dump();
}

}  // namespace kiln
