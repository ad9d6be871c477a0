// Opens libcuda.so.1, checks its version, fills the table, initialises the driver; once.
#include "runtime/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda/errors.h"

namespace kiln::runtime {
namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";

struct DriverState {
  DriverTable table;
  CudaStatus status;
};

std::atomic<const DriverState*> g_state{nullptr};

// Opened drivers are kept until the process ends, because kernels may be unloaded after main().
struct DriverStore {
  std::mutex mutex;
  std::string library = kDriverLibrary;
  std::vector<std::unique_ptr<const DriverState>> states;
};

DriverStore& store() {
  static DriverStore* const store = [] {
    // A child of fork would wait for ever for a lock that another thread held.
    pthread_atfork([] { runtime::store().mutex.lock(); }, [] { runtime::store().mutex.unlock(); },
                   [] { runtime::store().mutex.unlock(); });
    return new DriverStore;
  }();
  return *store;
}
// Made when the library is loaded: a handler that is added while a fork is under way is not run.
[[maybe_unused]] const auto& g_store = store();

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

template <typename Function>
Function symbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

// The name of the first function that the driver lacks, or null.
const char* fill_table(decltype(&::cuGetProcAddress) get, DriverTable& table) {
  const auto find = [get](const char* name) -> void* {
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result =
        get(name, &function, kMinimumDriver, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    return result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS ? function : nullptr;
  };
#define KILN_DRIVER_FIND(name)                                      \
  table.name = reinterpret_cast<decltype(table.name)>(find(#name)); \
  if (table.name == nullptr) return #name;
  KILN_DRIVER_FUNCTIONS(KILN_DRIVER_FIND)
#undef KILN_DRIVER_FIND
  return nullptr;
}

std::string init_problem(const DriverTable& table, CUresult result) {
  if (result == CUDA_ERROR_NO_DEVICE) {
    return "the CUDA driver sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES and, in a "
           "container, that it was started with its GPUs (--gpus all)";
  }
  if (result == CUDA_ERROR_STUB_LIBRARY) {
    return "libcuda.so.1 is the toolkit's stub, not a driver: remove the toolkit's stubs folder "
           "from LD_LIBRARY_PATH";
  }
  const std::string failed = driver_error(table, result, "cuInit").what();
  if (result == CUDA_ERROR_NOT_INITIALIZED) return failed;  // it has its cure
  return failed +
         std::string(
             ": check that nvidia-smi works and that the driver was not updated since boot");
}

// Fills `state`. Returns what is wrong and the cure, or an empty text.
std::string open_driver(const std::string& library, DriverState& state) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return "the CUDA driver could not be opened (" + std::string(dlerror()) +
           "): install NVIDIA driver 550 or newer or, in a container, start it with its GPUs "
           "(--gpus all)";
  }
  CudaStatus& status = state.status;
  status.driver_found = true;
  status.driver_path = library;

  const auto get_version = symbol<decltype(&::cuDriverGetVersion)>(handle, "cuDriverGetVersion");
  Dl_info where{};
  if (get_version != nullptr && dladdr(reinterpret_cast<void*>(get_version), &where) != 0) {
    status.driver_path = where.dli_fname;
  }
  if (get_version == nullptr || get_version(&status.driver_version) != CUDA_SUCCESS) {
    return status.driver_path +
           " does not report its version: it is not a working CUDA driver; "
           "install NVIDIA driver 550 or newer";
  }
  const auto get = symbol<decltype(&::cuGetProcAddress)>(handle, "cuGetProcAddress_v2");
  if (status.driver_version < kMinimumDriver || get == nullptr) {
    return "the CUDA driver supports CUDA " + version_text(status.driver_version) +
           ", but Kiln needs " + version_text(kMinimumDriver) +
           ": install NVIDIA driver 550 or newer";
  }
  if (const char* missing = fill_table(get, state.table)) {
    return status.driver_path + " has no " + missing + " although it reports CUDA " +
           version_text(status.driver_version) + ": reinstall the NVIDIA driver";
  }
  CUresult result = state.table.cuInit(0);
  if (result != CUDA_SUCCESS) return init_problem(state.table, result);
  result = state.table.cuDeviceGetCount(&status.device_count);
  if (result == CUDA_SUCCESS && status.device_count == 0) result = CUDA_ERROR_NO_DEVICE;
  return result == CUDA_SUCCESS ? "" : init_problem(state.table, result);
}

const DriverState& state() {
  if (const DriverState* ready = g_state.load(std::memory_order_acquire)) return *ready;
  DriverStore& all = store();
  const std::lock_guard lock(all.mutex);
  if (const DriverState* ready = g_state.load(std::memory_order_acquire)) return *ready;
  auto fresh = std::make_unique<DriverState>();
  fresh->status.problem = open_driver(all.library, *fresh);
  all.states.push_back(std::move(fresh));
  g_state.store(all.states.back().get(), std::memory_order_release);
  return *all.states.back();
}

}  // namespace

const CudaStatus& cuda_status() { return state().status; }

const DriverTable* driver_if_usable() {
  const DriverState& opened = state();
  return opened.status.problem.empty() ? &opened.table : nullptr;
}

const DriverTable& driver() {
  const DriverState& opened = state();
  if (!opened.status.problem.empty()) throw NoDeviceError(opened.status.problem);
  return opened.table;
}

void reset_driver(const char* path) {
  DriverStore& all = store();
  const std::lock_guard lock(all.mutex);
  all.library = path == nullptr ? kDriverLibrary : path;
  g_state.store(nullptr, std::memory_order_release);
}

}  // namespace kiln::runtime
