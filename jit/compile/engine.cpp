#include "jit/compile/engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "cache/memory_cache.h"
#include "jit/compile/compile_events.h"
#include "jit/compile/policy.h"
#include "jit/compile/statistics.h"
#include "jit/op/blocking.h"
#include "jit/op/device_errors.h"
#include "jit/op/family.h"
#include "jit/op/log.h"
#include "jit/op/source_text.h"
#include "kiln/control.h"

namespace kiln {
namespace {

struct ResidentId {
  Specialization spec;
  int ordinal = 0;
  bool operator==(const ResidentId&) const = default;
};
struct ResidentHash {
  std::size_t operator()(const ResidentId& id) const {
    return id.spec.hash() + static_cast<std::size_t>(id.ordinal) * 0x9e3779b9u;
  }
};
using ResidentCache = cache::MemoryCache<ResidentId, LoadedKernel, ResidentHash>;

// Never destroyed: a kernel may be launched from a thread that outlives main, and unloading after
// the driver has shut down is an error. clear_memory_cache leaves the old map behind for the same
// reason: somebody may be about to launch from it.
std::atomic<ResidentCache*> g_residents{new ResidentCache};
ResidentCache& residents() { return *g_residents.load(std::memory_order_acquire); }

// Maps that clear_memory_cache left behind, still reachable: no leak.
struct Retired {
  std::mutex mutex;
  std::vector<ResidentCache*> maps;
};
auto& g_retired = *new Retired;

// A child of fork keeps the kernels; those that other threads were building it builds itself.
[[maybe_unused]] const int g_fork_handlers = pthread_atfork(
    [] {
      g_retired.mutex.lock();
      residents().before_fork();
    },
    [] {
      residents().after_fork_in_parent();
      g_retired.mutex.unlock();
    },
    [] {
      residents().after_fork_in_child();
      g_retired.mutex.unlock();
    });

// Each thread's last kernels, by a direct-mapped slot: a hit here takes no lock at all.
// `generation` changes with clear_memory_cache, which keeps the kernels themselves alive.
std::atomic<std::uint64_t> g_generation{1};
struct HotSlot {
  ResidentId id;
  const LoadedKernel* kernel = nullptr;
  std::uint64_t generation = 0;
};
constexpr std::size_t kHotSlots = 64;
thread_local HotSlot t_hot[kHotSlots];

// Null on a miss.
inline const LoadedKernel* hot_kernel(const ResidentId& id) {
  const HotSlot& slot = t_hot[ResidentHash{}(id) % kHotSlots];
  const bool is_hit =
      slot.id == id && slot.generation == g_generation.load(std::memory_order_relaxed);
  if (!is_hit) return nullptr;
  count(statistics().memory_hits);
  return slot.kernel;
}

class Stopwatch {
 public:
  std::uint64_t nanoseconds() const {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

std::shared_ptr<LoadedKernel> load(const Specialization& spec, const cache::Entry& entry,
                                   runtime::Device& device) {
  const Stopwatch watch;
  auto loaded = std::make_shared<LoadedKernel>();
  const Footprint footprint = spec.kernel().footprint(spec);
  loaded->threads = footprint.threads;
  loaded->dynamic_shared_bytes = footprint.dynamic_shared_bytes;
  loaded->kernel = device.load({entry.cubin, entry.ptx, kEntryName, loaded->dynamic_shared_bytes});
  count(statistics().load_nanoseconds, watch.nanoseconds());
  return loaded;
}

// Why a kernel is built.
struct Miss {
  std::string why = "not in the cache";
  std::optional<cache::Key> refused;  // the last entry that the driver did not load
};

// A disk entry that the driver refuses is a miss like any other: null, with the reason in `miss`.
// The second look at it says nothing more: another process might have replaced it meanwhile.
std::shared_ptr<LoadedKernel> load_from_disk(const Specialization& spec, const KernelSource& source,
                                             runtime::Device& device, Miss& miss) {
  // Only the emulator runs PTX: a GPU is spared reading and inflating it.
  const bool runs_cubin = device.info().kind == runtime::DeviceKind::cuda;
  auto hit = disk_cache().get(source.key,
                              runs_cubin ? cache::Payload::kCubin : cache::Payload::kCubinAndPtx);
  if (!hit) return nullptr;
  try {
    auto loaded = load(spec, hit->entry, device);
    count(statistics().disk_hits[std::min(hit->layer, Statistics::kMaxLayers - 1)]);
    return loaded;
  } catch (const runtime::DeviceError& error) {
    if (miss.refused != source.key) {
      log(LogLevel::warning, "the cached kernel " + source.key.hex() +
                                 " could not be loaded: " + error.what() + "; compiling it again");
    }
    miss = {.why = "the device refused the cached kernel", .refused = source.key};
    return nullptr;
  }
}

// The slow path, run once per kernel and device. An emulated device takes the GPU's entry where the
// cache has it, and otherwise has one of its own.
std::shared_ptr<LoadedKernel> build(const Specialization& spec, const UserTexts& texts,
                                    runtime::Device& device) {
  KernelSource source = source_of(spec, texts);
  Miss miss;
  if (auto loaded = load_from_disk(spec, source, device, miss)) return loaded;
  if (device.info().kind != runtime::DeviceKind::cuda) {
    source = emulated_source(source);
    if (auto loaded = load_from_disk(spec, source, device, miss)) return loaded;
  }
  try {
    require_compiling(spec, texts, source);
  } catch (const CompileDisabled&) {
    count(statistics().misses);
    note_refusal(spec, texts, source, miss.why + ", and compiling is off");
    throw;
  }
  // One process compiles, the others wait for its entry, at most about as long as a compile takes.
  const auto lock = disk_cache().lock(source.key, 5.0);
  if (auto loaded = load_from_disk(spec, source, device, miss)) return loaded;  // a hit after all
  count(statistics().misses);
  const cache::Entry entry = compile_and_note(spec, texts, source, miss.why, Asker::call);
  auto loaded = load(spec, entry, device);
  disk_cache().put(source.key, entry);
  return loaded;
}

// `stream` is null when there is none to ask about.
const LoadedKernel& find_or_build_noting(const ResidentId& id, const UserTexts& texts,
                                         runtime::Device& device, void* const* stream) {
  const std::uint64_t generation = g_generation.load(std::memory_order_acquire);
  ResidentCache& cache = residents();
  auto kernel = cache.find(id);
  if (kernel) {
    count(statistics().memory_hits);
  } else {
    try {
      if (stream && device.is_capturing(*stream)) {
        note_refusal(id.spec, texts, source_of(id.spec, texts), "its stream is being captured");
        refuse_capture(id.spec, texts);
      }
      kernel = cache.get(id, [&] { return build(id.spec, texts, device); });
    } catch (const runtime::DeviceError& error) {
      throw_device_error(error);
    }
  }
  t_hot[ResidentHash{}(id) % kHotSlots] = {id, kernel.get(), generation};
  return *kernel;  // the map keeps it
}

const LoadedKernel& find_or_build(const ResidentId& id, const UserTexts& texts,
                                  runtime::Device& device, void* const* stream) {
  const BlockingScope blocking;
  const CompileEventScope events;
  return find_or_build_noting(id, texts, device, stream);
}

// One thread for each kernel; this one takes the first.
void build_together(std::span<const Specialization* const> specs, const UserTexts& texts,
                    runtime::Device& device, std::span<KernelOrFailure> found) {
  const BlockingScope blocking;
  const CompileEventScope events;
  std::vector<std::vector<NotedCompile>> noted(specs.size());
  const auto find = [&](std::size_t i) {
    if (found[i].kernel != nullptr) return;
    try {
      const ResidentId id{*specs[i], device.info().ordinal};
      found[i].kernel = &find_or_build_noting(id, texts, device, nullptr);
    } catch (...) {
      found[i].failure = std::current_exception();
    }
    noted[i] = take_noted();
  };
  {
    std::vector<std::jthread> threads;
    std::size_t started = 1;
    try {
      for (; started < specs.size(); ++started) threads.emplace_back(find, started);
    } catch (const std::system_error&) {
      // A limit of processes (ulimit -u, a container's): this thread builds the others.
    }
    find(0);
    for (std::size_t i = started; i < specs.size(); ++i) find(i);
  }
  // The listeners are told by the thread of the call.
  for (auto& one : noted) note_as_own(std::move(one));
}

// Tells whether kernels may be loaded now. `stream` is null when there is none to ask about.
bool may_load(runtime::Device& device, void* const* stream) {
  try {
    return stream == nullptr || !device.is_capturing(*stream);
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

}  // namespace

const LoadedKernel& resident_kernel(const Specialization& spec, const UserTexts& texts,
                                    runtime::Device& device, void* stream) {
  const ResidentId id{spec, device.info().ordinal};
  if (const LoadedKernel* const kernel = hot_kernel(id)) return *kernel;
  return find_or_build(id, texts, device, &stream);
}

const LoadedKernel& preload_kernel(const Specialization& spec, const UserTexts& texts,
                                   runtime::Device& device) {
  return find_or_build({spec, device.info().ordinal}, texts, device, nullptr);
}

void find_together(std::span<const Specialization* const> specs, const UserTexts& texts,
                   runtime::Device& device, void* const* stream, std::span<KernelOrFailure> found) {
  const int ordinal = device.info().ordinal;
  bool all_are_hot = true;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    found[i].kernel = hot_kernel({*specs[i], ordinal});
    all_are_hot = all_are_hot && found[i].kernel != nullptr;
  }
  if (all_are_hot) return;
  const auto missing = std::ranges::count_if(
      specs, [&](const Specialization* spec) { return !is_resident(*spec, device); });
  if (missing > 1 && may_compile() && may_load(device, stream)) {
    return build_together(specs, texts, device, found);
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (found[i].kernel != nullptr) continue;
    try {
      found[i].kernel = &find_or_build({*specs[i], ordinal}, texts, device, stream);
    } catch (...) {
      found[i].failure = std::current_exception();
    }
  }
}

bool is_resident(const Specialization& spec, const runtime::Device& device) {
  return residents().find({spec, device.info().ordinal}) != nullptr;
}

std::size_t resident_count() { return residents().size(); }

void clear_memory_cache() {
  const std::lock_guard lock(g_retired.mutex);
  g_retired.maps.push_back(g_residents.exchange(new ResidentCache, std::memory_order_acq_rel));
  g_generation.fetch_add(1, std::memory_order_release);
}

}  // namespace kiln
