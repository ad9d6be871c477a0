// Finds and opens NVRTC; the order of the search is in compiler.h.
#include "jit/compile/nvrtc.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include "jit/compile/signal_slots.h"
#include "jit/op/whole_file.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr int kMinimumVersion = 12040;
constexpr std::array kMajors{13, 12};  // newest first

std::string library_name(int major) { return "libnvrtc.so." + std::to_string(major); }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The file of a symbol or of an opened library; empty if the loader does not know it.
fs::path file_of(const void* address) {
  Dl_info where{};
  if (dladdr(address, &where) == 0 || where.dli_fname == nullptr) return {};
  std::error_code ignored;
  const fs::path absolute = fs::canonical(where.dli_fname, ignored);
  return ignored ? fs::path(where.dli_fname) : absolute;
}

// 8 hex digits over a file's bytes: FNV-1a over words, for a few MB that a process reads once.
std::string digest_of_file(const fs::path& path) {
  auto bytes = read_whole_file(path);
  if (!bytes) return {};
  bytes->resize((bytes->size() + 7) / 8 * 8);
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t at = 0; at < bytes->size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes->data() + at, 8);
    hash = (hash ^ word) * 0x100000001b3u;
  }
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", unsigned(hash ^ hash >> 32));
  return text.data();
}

std::vector<int> supported_archs(const Nvrtc& api) {
  int count = 0;
  if (api.nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count <= 0) return {};
  std::vector<int> archs(std::size_t(count), 0);
  if (api.nvrtcGetSupportedArchs(archs.data()) != NVRTC_SUCCESS) return {};
  return archs;
}

class Search {
 public:
  explicit Search(const NvrtcSearch& search) : search_(search) {}

  std::unique_ptr<const Nvrtc> run() {
    if (!search_.nvrtc_override.empty()) return run_override();
    for (auto step : {&Search::already_loaded, &Search::from_pip, &Search::from_cuda_home,
                      &Search::from_system}) {
      if (auto found = (this->*step)()) return found;
    }
    return nullptr;
  }

  std::string problem() const {
    if (!search_.nvrtc_override.empty()) {
      return "KILN_NVRTC=" + search_.nvrtc_override + " cannot be used: " + tried_ +
             "; set it to the path of a libnvrtc.so of CUDA 12.4 or newer, or unset it";
    }
    // The package without a suffix has the newest major version, which a 12.x driver cannot use.
    const char* package = allows(kMajors.front()) ? "" : "-cu12";
    return "no usable NVRTC was found (tried: " + tried_ +
           "): install it with `pip install nvidia-cuda-nvrtc" + package +
           "` or with the CUDA Toolkit, or set KILN_NVRTC to the path of libnvrtc.so";
  }

 private:
  using Found = std::unique_ptr<const Nvrtc>;

  void note(const std::string& what) { tried_ += (tried_.empty() ? "" : "; ") + what; }
  // Notes why an existing library is not used, which a user might expect to be used.
  void pass_over(const std::string& what) {
    note(what);
    passed_over_.push_back(what);
  }

  bool allows(int major) const {
    return search_.driver_version == 0 || major <= search_.driver_version / 1000;
  }

  std::string too_new() const {
    return ": too new for the driver, which supports CUDA " + version_text(search_.driver_version);
  }

  // Checks an opened library and completes its description; notes why it cannot be used.
  Found accept(void* handle, const std::string& label, const char* how) {
    const auto reject = [&](const std::string& why) {
      pass_over(label + ": " + why);
      return nullptr;
    };
    auto api = std::make_unique<Nvrtc>();
#define KILN_NVRTC_FIND(name)                                              \
  api->name = reinterpret_cast<decltype(api->name)>(dlsym(handle, #name)); \
  if (api->name == nullptr) return reject("it has no " #name);
    KILN_NVRTC_FUNCTIONS(KILN_NVRTC_FIND)
#undef KILN_NVRTC_FIND
    int major = 0, minor = 0;
    if (api->nvrtcVersion(&major, &minor) != NVRTC_SUCCESS)
      return reject("it does not report its version");
    const int version = major * 1000 + minor * 10;
    if (version < kMinimumVersion) {
      return reject("it is version " + version_text(version) + ", older than " +
                    version_text(kMinimumVersion));
    }
    if (!allows(major)) {
      return reject("it is version " + version_text(version) + too_new());
    }
    // NVRTC opens its builtins by this bare name at the first compile. They are opened here by
    // their path, so that the loader never finds those of another NVRTC on the library path.
    const fs::path path = file_of(reinterpret_cast<void*>(api->nvrtcVersion));
    const fs::path builtins =
        path.parent_path() / ("libnvrtc-builtins.so." + version_text(version));
    if (dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
      return reject("its builtins cannot be opened (" + std::string(dlerror()) + ")");
    }
    std::vector<int> archs = supported_archs(*api);
    if (archs.empty()) return reject("it does not list its architectures");
    // Comes last: a library whose calls were changed is not closed again.
    const bool is_detached = detach_signal_handlers(handle);
    api->info = {.loaded = true,
                 .path = path.string(),
                 .how = how,
                 .version = version_text(version),
                 .build = digest_of_file(builtins),
                 .archs = std::move(archs),
                 .handles_signals = !is_detached,
                 .passed_over = passed_over_,
                 .problem = {}};
    return api;
  }

  Found open_file(const fs::path& path, const char* how) {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      note(path.string() + ": no such file");
      return nullptr;
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      pass_over(path.string() + ": " + dlerror());
      return nullptr;
    }
    Found found = accept(handle, path.string(), how);
    if (found == nullptr) dlclose(handle);
    return found;
  }

  // Tries each existing libnvrtc of an allowed major in `folder`, newest first.
  Found open_folder(const fs::path& folder, const char* how) {
    bool any = false;
    for (const int major : kMajors) {
      const fs::path path = folder / library_name(major);
      std::error_code ignored;
      if (!fs::exists(path, ignored)) continue;
      any = true;
      if (!allows(major)) {
        pass_over(path.string() + too_new());
      } else if (auto found = open_file(path, how)) {
        return found;
      }
    }
    if (!any) note(folder.string() + ": no libnvrtc.so.13 or .12");
    return nullptr;
  }

  Found run_override() {
    const fs::path path = search_.nvrtc_override;
    std::error_code ignored;
    return fs::is_directory(path, ignored) ? open_folder(path, "KILN_NVRTC")
                                           : open_file(path, "KILN_NVRTC");
  }

  Found already_loaded() {
    for (const int major : kMajors) {
      const std::string name = library_name(major);
      void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
      if (handle == nullptr) continue;
      if (auto found = accept(handle, name + " of this process", "already loaded")) return found;
      dlclose(handle);
    }
    return nullptr;
  }

  Found from_pip() {
    std::vector<fs::path> bases;
    // site-packages/kiln/_core.so and site-packages/kiln/lib/libkiln.so search the folder of
    // `kiln`.
    const fs::path self = file_of(reinterpret_cast<const void*>(&open_nvrtc)).parent_path();
    for (const fs::path& base : {self.parent_path(), self.parent_path().parent_path()}) {
      if (!base.empty()) bases.push_back(base);
    }
    bases.insert(bases.end(), search_.python_paths.begin(), search_.python_paths.end());
    std::vector<fs::path> seen;
    for (const fs::path& base : bases) {
      const fs::path nvidia = base / "nvidia";
      std::error_code ignored;
      if (std::find(seen.begin(), seen.end(), nvidia) != seen.end()) continue;
      seen.push_back(nvidia);
      if (!fs::is_directory(nvidia, ignored)) {
        note(nvidia.string() + ": no such folder");
        continue;
      }
      for (const char* package : {"cu13", "cu12", "cuda_nvrtc"}) {
        const fs::path folder = nvidia / package / "lib";
        if (!fs::is_directory(folder, ignored)) continue;
        if (auto found = open_folder(folder, "pip")) return found;
      }
    }
    return nullptr;
  }

  Found from_toolkit(const fs::path& root, const char* how) {
    for (const char* folder : {"lib64", "lib"}) {
      if (auto found = open_folder(root / folder, how)) return found;
    }
    return nullptr;
  }

  Found from_cuda_home() {
    return search_.cuda_home.empty() ? nullptr : from_toolkit(search_.cuda_home, "CUDA_HOME");
  }

  Found from_system() {
    for (const int major : kMajors) {
      const std::string name = library_name(major);
      void* handle = allows(major) ? dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
      if (handle == nullptr) {
        note(allows(major) ? dlerror() : name + too_new());
        continue;
      }
      if (auto found = accept(handle, name, "system loader")) return found;
      dlclose(handle);
    }
    return from_toolkit("/usr/local/cuda", "/usr/local/cuda");
  }

  const NvrtcSearch& search_;
  std::string tried_;
  std::vector<std::string> passed_over_;
};

// The NVRTC of the process. It is never freed, because threads may compile while the process exits.
struct Chosen {
  std::mutex mutex;
  NvrtcSearch search;
  std::string problem;
  std::unique_ptr<const Nvrtc> owner;
  std::atomic<const Nvrtc*> nvrtc{nullptr};
};

Chosen& chosen() {
  static Chosen* const chosen = [] {
    // A child of fork would wait for ever for a lock that another thread held.
    pthread_atfork([] { kiln::chosen().mutex.lock(); }, [] { kiln::chosen().mutex.unlock(); },
                   [] { kiln::chosen().mutex.unlock(); });
    return new Chosen;
  }();
  return *chosen;
}
// Made when the library is loaded: a handler that is added while a fork is under way is not run.
[[maybe_unused]] const auto& g_chosen = chosen();

const Nvrtc* load(std::string& problem) {
  Chosen& all = chosen();
  if (const Nvrtc* ready = all.nvrtc.load(std::memory_order_acquire)) return ready;
  const std::lock_guard lock(all.mutex);
  if (const Nvrtc* ready = all.nvrtc.load(std::memory_order_acquire)) return ready;
  all.owner = open_nvrtc(all.search, all.problem);
  problem = all.problem;
  all.nvrtc.store(all.owner.get(), std::memory_order_release);
  return all.owner.get();
}

}  // namespace

std::unique_ptr<const Nvrtc> open_nvrtc(const NvrtcSearch& search, std::string& problem) {
  Search running(search);
  auto found = running.run();
  problem = found != nullptr ? "" : running.problem();
  return found;
}

const Nvrtc& nvrtc() {
  std::string problem;
  if (const Nvrtc* found = load(problem)) return *found;
  throw CompileError(problem, "");
}

void set_nvrtc_search(NvrtcSearch search) {
  Chosen& all = chosen();
  const std::lock_guard lock(all.mutex);
  all.search = std::move(search);
}

bool nvrtc_is_loaded() { return chosen().nvrtc.load(std::memory_order_acquire) != nullptr; }

NvrtcInfo nvrtc_info(bool load_it) {
  NvrtcInfo info;
  if (load_it) {
    if (const Nvrtc* found = load(info.problem)) return found->info;
    return info;
  }
  Chosen& all = chosen();
  if (const Nvrtc* ready = all.nvrtc.load(std::memory_order_acquire)) return ready->info;
  const std::lock_guard lock(all.mutex);
  info.problem = all.problem;  // of the last attempt
  return info;
}

}  // namespace kiln
