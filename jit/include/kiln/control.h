// The functions beside the operations: compile policy, statistics, prewarming, explanation. Reports
// are JSON texts, so that no public header includes a JSON library. Schemas: docs/prewarm.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kiln/export.h"
#include "kiln/kiln.h"

namespace KILN_PUBLIC kiln {

std::string version();

enum class JitMode { automatic, warn, off };
JitMode parse_jit_mode(const std::string& name);  // "auto", "warn", "off"
JitMode set_jit(JitMode mode);  // for the whole process; returns the previous mode
// While an object exists, the thread that made it compiles nothing: a miss throws CompileDisabled.
// It may be destroyed on another thread, or after its own thread has ended.
class NoCompile {
 public:
  NoCompile();
  ~NoCompile();
  NoCompile(const NoCompile&) = delete;
  NoCompile& operator=(const NoCompile&) = delete;

 private:
  std::shared_ptr<std::atomic<int>> open_;  // how many its thread has
};

// Sets the device of this thread's calls on host memory and returns the previous choice: "cuda",
// "cuda:1", the emulated device ("emulator", "emulator:sm_90a,late,seed=3,checks=off"), or "auto",
// which means the emulated device if there is no CUDA driver, and otherwise that such calls are
// refused. KILN_DEVICE sets it for the process. Tensors in a GPU's memory always go to their own
// device.
std::string set_device(const std::string& choice);
std::string device();

// {"memory_hits", "disk_hits": [per layer], "misses", "compiles", "compile_seconds",
//  "load_seconds", "nvrtc_loaded", "kernels_resident"}
std::string stats();
void reset_stats();

// Forgets which kernels are loaded, so that this process looks each up on disk again. This frees no
// memory: loaded kernels stay loaded, because another thread may be about to launch one. For tests.
void clear_memory_cache();

// Each operation has a function explain_* in its header (kiln/attention.h, kiln/gemm.h), which
// tells what a call would run, without running it: {"op", "path", "device", "template", "what",
// "config", "splits", "whole_tiles", "spec", "key", "arch", "layer": "memory" | a folder | null,
// "workspace_bytes", "why": [..]}, and "launches" for calls with several launches. Of a call that
// has nothing to compute: {"op", "path": "none", "why"}.

// A spec is a JSON object that names kernels without tensors: see docs/prewarm.md and
// python/kiln/data/spec.schema.json. One spec may stand for several kernels (one per config row).
struct PrewarmProgress {
  std::size_t done = 0, total = 0;
  std::string what;     // "flash_attention bf16 d128 causal, 128x64, sm_90a"
  std::string outcome;  // "compiled", "cached", "missing" (with check_only) or "failed: …"
  double seconds = 0;
};
struct PrewarmOptions {
  std::vector<std::string> archs;  // "sm_90a"; empty = those of this machine's devices
  int jobs = 0;                    // 0 = one per core
  bool recompile = false;          // also compile what the cache has
  bool check_only = false;         // report what is missing, compile nothing
  std::function<void(const PrewarmProgress&)> progress;  // called from any thread, one at a time
  std::function<bool()> cancelled;  // called before each kernel, from any thread; true = stop
};
// `specs`: a JSON array of specs. Returns {"total", "compiled", "cached", "missing", "failed":
// [{"what", "error"}], "seconds", "kernels": [{"what", "arch", "key", "outcome", "seconds",
// "spec"}]}. Kernels that were not compiled because of `cancelled` have the outcome "cancelled".
// Throws what `progress` or `cancelled` threw, once the kernels under way are done.
std::string prewarm(const std::string& specs, const PrewarmOptions& options);

// A report about a kernel that this process compiled, or missed.
struct CompileEvent {
  std::string what;     // "gemm bfloat16 nt, tile 128x64x64x3"
  std::string spec;     // of this one kernel, as JSON
  std::string key;      // 64 hex digits
  std::string arch;     // "sm_90a"
  std::string outcome;  // "compiled", "refused" (compiling is off, or not possible now), "failed"
  std::string why;      // the kernel was compiled or refused
  double seconds = 0;   // that compiling took
};
// Has `listener` called after each compile and each miss of this process, on the thread that it
// happened on and without any lock held, so that it may call Kiln. What it throws is logged.
// Returns a number for remove_compile_listener, which says whether there was such a listener.
std::uint64_t add_compile_listener(std::function<void(const CompileEvent&)> listener);
bool remove_compile_listener(std::uint64_t number);

// Loads the kernels of one spec onto a device, and compiles them if that is allowed, so that a
// stream may be captured. Without an ordinal, the device is the emulated one if it was chosen or if
// there is no driver, and otherwise CUDA device 0.
void preload(const std::string& spec, std::optional<int> device_ordinal = std::nullopt);

// Source, PTX, registers, shared memory and spills of each kernel of a spec, as a JSON array. Their
// cubins are written to `cubins` in the same order, unless it is null.
std::string inspect(const std::string& spec, const std::string& arch,
                    std::vector<std::string>* cubins = nullptr);

// Returns what is known of each kernel of a spec before it is compiled, its source among it, as a
// JSON array. It compiles nothing.
std::string inspect_source(const std::string& spec, const std::string& arch);

// Every spec that the built-in tables can give for an arch, one config row each, as a JSON array.
std::string enumerate_specs(const std::string& arch);

// Sets the measured table of tiles that calls of this process ask before the built-in choice, as
// KILN_TUNING does; an empty path removes it. Returns the path of the previous table. Throws
// std::invalid_argument for a file that cannot be read or is not such a table, and then changes
// nothing. See docs/tuning.md.
std::string set_tuning(const std::string& path);

// The operations and the properties of their kernels: [{"op", "title", "fields": [{"name", "kind",
// "values", "default", "help", "flag", ..}], "tile_fields": [..], "templates": [{"path",
// "file"}]}].
std::string describe_families();

// {"version", "driver": {..}, "nvrtc": {..}, "devices": [..], "device": {..}, "cache": {..},
//  "environment": {..}}
std::string diagnose();

std::string cache_info();    // {"layers": [..]}
std::string cache_list();    // [{"key", "path", "layer", "what", "arch", "nvrtc_version", "bytes",
                             // "pinned", "last_used"}]
std::string cache_verify();  // {"checked", "faults": [{"key", "path", "fault"}]}; a folder
                             // that is not used is a fault without a key
// Pruning removes the least recently used kernels that are not pinned until the limits hold, and
// the kernels that an older NVRTC compiled whether they are pinned or not.
struct CachePruning {
  std::uint64_t max_bytes = UINT64_MAX;  // keeps this much
  std::int64_t unused_since = 0;         // keeps what was used since; seconds since the epoch
  std::string older_than_nvrtc;          // "13.0", or empty; else std::invalid_argument
  bool dry_run = false;                  // removes nothing, and reports what would be removed
};
// {"removed", "bytes", "failed", "in_use", "kept_pinned", "problem", "entries"}: how many entries
// were removed (and which), how many could not be removed and why (a sentence, or empty), how many
// were kept because they were in use, and how many because they are pinned.
std::string cache_prune(const CachePruning& limits);
std::string cache_clear();  // removes all entries of the writable folder, pinned or not

// For language bindings. The hooks are called around work that may block (locks, compiling,
// loading), so that Python's GIL is released first. `enter` returns a token for `leave`.
struct BlockingHooks {
  void* (*enter)() = nullptr;
  void (*leave)(void*) = nullptr;
};
void set_blocking_hooks(BlockingHooks hooks);

// Sets the folders in which pip's nvidia-cuda-nvrtc is looked for. The Python package calls this on
// import.
void set_python_paths(std::vector<std::string> paths);

// Receives every log line; null = stderr. Levels: 0 error, 1 warning, 2 info, 3 debug.
void set_log_sink(std::function<void(int level, const std::string& text)> sink);

}  // namespace KILN_PUBLIC kiln
