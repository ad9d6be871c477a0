// The emulated kind of device: loading, launching, and the registry by architecture.
#include "runtime/emulator/machine/emulated_device.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/async/tensor_map.h"
#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/machine/polling.h"
#include "runtime/emulator/memory/memory.h"
#include "runtime/emulator/memory/overlap.h"
#include "runtime/emulator/ptx/ptx.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime {
namespace emulator {
namespace {

thread_local Options t_options;

// A decoded kernel with the storage of its module's variables.
struct LoadedProgram {
  std::shared_ptr<const Module> module;
  GlobalVariables globals;
  Program program;

  LoadedProgram(std::string_view ptx, std::string_view entry)
      : module(std::make_shared<const Module>(parse_ptx(ptx))),
        globals(*module),
        program(decode(module, entry.empty() ? only_kernel(*module) : entry, globals)) {}

 private:
  static std::string_view only_kernel(const Module& module) {
    std::string names;
    std::string_view found;
    int count = 0;
    for (const Function& function : module.functions) {
      if (!function.is_entry || !function.has_body) continue;
      found = function.name;
      names += (count++ == 0 ? "" : ", ") + std::string(function.name);
    }
    if (count == 1) return found;
    throw EmulatorError(Fault::bad_launch,
                        count == 0 ? "the module has no kernel"
                                   : "the module has several kernels, name one: " + names);
  }
};

[[noreturn]] void refuse(const Program& program, const std::string& message) {
  Site site;
  site.kernel = program.kernel;
  throw EmulatorError(Fault::bad_launch, message, site);
}

std::string triple(const std::array<unsigned, 3>& n) {
  return std::to_string(n[0]) + "x" + std::to_string(n[1]) + "x" + std::to_string(n[2]);
}

// CUDA C++ Programming Guide, "Technical specifications": sizes that every launch must keep to.
void check_shape(const Program& program, const DeviceLimits& limits, const LaunchShape& shape) {
  constexpr std::array<unsigned, 3> kGrid = {0x7fffffff, 65535, 65535};
  constexpr std::array<unsigned, 3> kBlock = {1024, 1024, 64};
  constexpr std::uint64_t kMaxClusterBlocks = 16;  // non-portable size
  const Function& function = *program.function;
  std::uint64_t threads = 1, cluster = 1, required = 1, most = 1;
  bool has_required = false, has_most = false;
  for (std::size_t i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.grid[i] > kGrid[i]) {
      refuse(program,
             "a grid of " + triple(shape.grid) + " blocks; each size is 1 to " + triple(kGrid));
    }
    if (shape.block[i] == 0 || shape.block[i] > kBlock[i]) {
      refuse(program,
             "blocks of " + triple(shape.block) + " threads; each size is 1 to " + triple(kBlock));
    }
    if (shape.cluster[i] == 0 || shape.grid[i] % shape.cluster[i] != 0) {
      refuse(program, "the grid " + triple(shape.grid) + " is no multiple of the cluster " +
                          triple(shape.cluster));
    }
    threads *= shape.block[i];
    cluster *= shape.cluster[i];
    required *= std::max(function.required_threads[i], 1u);
    most *= std::max(function.max_threads[i], 1u);
    has_required = has_required || function.required_threads[i] != 0;
    has_most = has_most || function.max_threads[i] != 0;
  }
  if (threads > 1024)
    refuse(program, "blocks of " + std::to_string(threads) + " threads; at most 1024");
  if (has_required && threads != required) {
    refuse(program, "blocks of " + std::to_string(threads) + " threads; the kernel requires " +
                        std::to_string(required));
  }
  if (has_most && threads > most) {
    refuse(program, "blocks of " + std::to_string(threads) + " threads; the kernel allows " +
                        std::to_string(most));
  }
  if (cluster > 1 && limits.major < 9) refuse(program, "clusters need sm_90 or newer");
  if (cluster > kMaxClusterBlocks)
    refuse(program, "a cluster of " + std::to_string(cluster) + " blocks; at most 16 are allowed");
  const std::uint64_t shared = std::uint64_t{program.shared_bytes} + shape.dynamic_shared_bytes;
  if (shared > limits.shared_per_block) {
    refuse(program, std::to_string(shared) + " bytes of shared memory a block; " + limits.name +
                        " has " + std::to_string(limits.shared_per_block));
  }
}

void check_target(const Module& module, const DeviceLimits& limits) {
  const std::string target(module.target.substr(0, module.target.find_first_of(" ,")));
  std::string_view digits = std::string_view(target).substr(target.starts_with("sm_") ? 3 : 0);
  const bool exact = !digits.empty() && (digits.back() == 'a' || digits.back() == 'f');
  if (exact) digits.remove_suffix(1);
  int number = 0;
  for (char c : digits) number = number * 10 + (c - '0');
  const int device = limits.major * 10 + limits.minor;
  if (number > device || (exact && number != device)) {
    throw EmulatorError(Fault::bad_launch, "PTX for " + target + " does not run on " + limits.name);
  }
}

// `stream` holds the launches before it, and in the end those that may still run behind it; it is
// null where there is no stream.
void launch_program(const LoadedProgram& loaded, const DeviceLimits& limits,
                    const LaunchShape& shape, std::span<const std::byte> arguments,
                    std::span<const MemorySpan> spans, const Options& options,
                    Overlap::Running* stream) {
  const Program& program = loaded.program;
  check_shape(program, limits, shape);
  if (arguments.size() < program.function->parameter_bytes) {
    refuse(program, std::to_string(arguments.size()) + " bytes of parameters; the kernel takes " +
                        std::to_string(program.function->parameter_bytes));
  }
  AddressMap memory;
  for (const MemorySpan& span : spans) {
    if (span.bytes > 0) memory.add(span.address, span.bytes, span.written);
  }
  loaded.globals.add_to(memory);
  Launch launch;
  launch.program = &program;
  launch.shape = shape;
  launch.arguments = arguments;
  launch.memory = &memory;
  launch.limits = &limits;
  launch.options = options;
  launch.poll = host_poll();
  if (stream == nullptr) return run_grid(launch);
  const auto own = std::make_shared<Footprint>(program.kernel, memory);
  Overlap overlap(own, shape.programmatic ? std::move(*stream) : Overlap::Running());
  stream->clear();
  launch.overlap = &overlap;
  run_grid(launch);
  *stream = overlap.running();
}

// What the calling thread has launched on a stream of a device.
struct History {
  Overlap::Running running;  // launches that may still run when the next one is made
  bool watched = false;      // launches are recorded for the next one, which costs time
};
History& history_on(const void* device, const void* stream) {
  thread_local std::map<std::pair<const void*, const void*>, History> histories;
  return histories[{device, stream}];
}

class EmulatedKernel final : public Kernel {
 public:
  explicit EmulatedKernel(const KernelImage& image) : loaded(image.ptx, image.entry) {}
  const LoadedProgram loaded;
};

// Ordinals of emulated devices: far above any CUDA device's, then the multiprocessors and the
// architecture's number.
constexpr int kFirstOrdinal = 1 << 16;

int ordinal_of(const DeviceLimits& limits) {
  return kFirstOrdinal + 1000 * limits.sm_count + limits.major * 10 + limits.minor;
}

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const DeviceLimits& limits) : limits_(limits) {
    info_.kind = DeviceKind::emulator;
    info_.ordinal = ordinal_of(limits);
    info_.name = limits.name;
    info_.compute_major = limits.major;
    info_.compute_minor = limits.minor;
    info_.sm_count = limits.sm_count;
    info_.shared_bytes_per_block = limits.shared_per_block;
  }

  const DeviceInfo& info() const override { return info_; }

  std::shared_ptr<Kernel> load(const KernelImage& image) override {
    auto kernel = std::make_shared<EmulatedKernel>(image);
    check_target(*kernel->loaded.module, limits_);
    return kernel;
  }

  void launch(const Kernel& kernel, const LaunchShape& shape, void* stream,
              std::span<const std::byte> arguments, std::span<const MemorySpan> spans) override {
    const Options& options = emulator_options();
    LaunchShape allowed = shape;
    allowed.programmatic = shape.programmatic && limits_.major >= 9;
    launch_program(static_cast<const EmulatedKernel&>(kernel).loaded, limits_, allowed, arguments,
                   spans, options, watched(allowed, stream, options.checks));
  }

  bool is_capturing(void*) override { return false; }
  // A launch returns when it is done.
  void synchronize(void* stream) override {
    if (watches_overlap_) history_on(this, stream).running.clear();
  }
  TensorMap make_tensor_map(const TensorMapSpec& spec) override {
    if (limits_.major < 9) {
      throw std::invalid_argument("tensor maps need compute capability 9.0 or newer, " +
                                  limits_.name + " is older");
    }
    return encode_emulated_tensor_map(spec);
  }

 private:
  // Those that may still run, if launches of this stream are recorded: from the first programmatic
  // launch on, or from one that is known to precede it.
  Overlap::Running* watched(const LaunchShape& shape, void* stream, bool checks) {
    const bool begins = shape.programmatic || (shape.precedes_programmatic && limits_.major >= 9);
    if (begins) watches_overlap_ = true;
    if (!watches_overlap_) return nullptr;
    History& history = history_on(this, stream);
    history.watched = history.watched || begins;
    if (history.watched && checks) return &history.running;
    history.running.clear();
    return nullptr;
  }

  const DeviceLimits limits_;
  DeviceInfo info_;
  std::atomic<bool> watches_overlap_{false};  // on any stream
};

struct Registry {
  std::mutex mutex;
  std::map<int, std::unique_ptr<EmulatedDevice>> devices;
};
// Never destroyed: kernels refer to devices.
Registry& registry() {
  static Registry* const registry = [] {
    // A child of fork would wait for ever for a lock that another thread held.
    pthread_atfork([] { emulator::registry().mutex.lock(); },
                   [] { emulator::registry().mutex.unlock(); },
                   [] { emulator::registry().mutex.unlock(); });
    return new Registry;
  }();
  return *registry;
}
// Made when the library is loaded: a handler that is added while a fork is under way is not run.
[[maybe_unused]] const auto& g_registry = registry();

}  // namespace

void run(const Run& run) {
  const LoadedProgram loaded(run.ptx, run.entry);
  const std::string_view target = loaded.module->target;
  const DeviceLimits limits =
      device_limits(run.arch.empty() ? target.substr(0, target.find_first_of(" ,")) : run.arch,
                    run.options.sm_count);
  check_target(*loaded.module, limits);
  launch_program(loaded, limits, run.shape, run.arguments, run.spans, run.options, nullptr);
}

}  // namespace emulator

Device& emulated_device(std::string_view arch, int sm_count) {
  const emulator::DeviceLimits limits = emulator::device_limits(arch, sm_count);
  emulator::Registry& all = emulator::registry();
  const std::lock_guard lock(all.mutex);
  auto& device = all.devices[emulator::ordinal_of(limits)];
  if (!device) device = std::make_unique<emulator::EmulatedDevice>(limits);
  return *device;
}

Device* emulated_device_of(int ordinal) {
  emulator::Registry& all = emulator::registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.devices.find(ordinal);
  return found == all.devices.end() ? nullptr : found->second.get();
}

const emulator::Options& emulator_options() { return emulator::t_options; }
void set_emulator_options(const emulator::Options& options) { emulator::t_options = options; }

}  // namespace kiln::runtime
