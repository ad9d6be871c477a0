// Everything around the operations: compile policy, statistics, prewarming, explanation. Reports
// are JSON texts, so that no JSON library shows in a public header. Schemas: docs/prewarm.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kiln/export.h"
#include "kiln/kiln.h"

namespace KILN_PUBLIC kiln {

std::string version();

enum class JitMode { automatic, warn, off };
JitMode parse_jit_mode(const std::string& name);  // "auto", "warn", "off"
JitMode set_jit(JitMode mode);                    // whole process; returns the previous one
// While alive, this thread compiles nothing: a miss throws CompileDisabled.
class NoCompile {
 public:
  NoCompile();
  ~NoCompile();
};

// The device of this thread's calls on host memory: "auto" (the emulated device where there is no
// CUDA driver; else none, and such calls are refused), "cuda", "cuda:1", or the emulated device:
// "emulator", "emulator:sm_90a,late,seed=3,checks=off". KILN_DEVICE sets it for the process.
// Tensors in a GPU's memory always go to their own device. Returns the previous choice.
std::string set_device(const std::string& choice);
std::string device();

// {"memory_hits", "disk_hits": [per layer], "misses", "compiles", "compile_seconds",
//  "load_seconds", "nvrtc_loaded", "kernels_resident"}
std::string stats();
void reset_stats();

// Makes this process look every kernel up again (the disk keeps them). Those that were loaded stay
// loaded, as another thread may be about to launch one: this frees no memory. For tests.
void clear_memory_cache();

// Each operation has an explain_* beside it (kiln/attention.h, kiln/gemm.h): what a call would run,
// without running it: {"op", "path", "device", "template", "config", "spec", "key", "arch",
// "layer": "memory" | a folder | null, "why": [..]}, and of calls with several launches "launches".

// A spec is a JSON object that names kernels without tensors: see docs/prewarm.md and
// python/kiln/data/spec.schema.json. One spec may stand for several kernels (one per config row).
struct PrewarmProgress {
  std::size_t done = 0, total = 0;
  std::string what;     // "flash_attention bf16 d128 causal, 128x64, sm_90a"
  std::string outcome;  // "compiled", "cached" or "failed: …"
  double seconds = 0;
};
struct PrewarmOptions {
  std::vector<std::string> archs;                        // "sm_90a"; empty = of the devices here
  int jobs = 0;                                          // 0 = one per core
  bool recompile = false;                                // also what the cache has
  bool check_only = false;                               // report what is missing, compile nothing
  std::function<void(const PrewarmProgress&)> progress;  // called from any thread, one at a time
  std::function<bool()> cancelled;  // asked before each kernel, from any thread; true = no more
};
// `specs`: a JSON array of specs. Returns {"total", "compiled", "cached", "missing", "failed":
// [{"what", "error"}], "seconds", "kernels": [{"what", "arch", "key", "outcome", "seconds"}]}.
// What was left out because of `cancelled` has the outcome "cancelled".
std::string prewarm(const std::string& specs, const PrewarmOptions& options);

// Loads the kernels of one spec on a device, compiling if allowed, so that a stream may capture.
// Without an ordinal: the emulated device where it was chosen or stands in, else CUDA device 0.
void preload(const std::string& spec, std::optional<int> device_ordinal = std::nullopt);

// Source, PTX, registers, shared memory, spills of each kernel that a spec stands for: JSON array.
// Their cubins, in the same order, go to `cubins` unless it is null.
std::string inspect(const std::string& spec, const std::string& arch,
                    std::vector<std::string>* cubins = nullptr);

// Every spec that the built-in tables can give for an arch, one config row each: JSON array.
std::string enumerate_specs(const std::string& arch);

// The operations and the properties of their kernels: [{"op", "title", "fields": [{"name", "kind",
// "values", "default", "help", "flag", ..}], "tile_fields": [..], "templates": [{"path",
// "file"}]}].
std::string describe_families();

// {"version", "driver": {..}, "nvrtc": {..}, "devices": [..], "device": {..}, "cache": {..},
//  "environment": {..}}
std::string diagnose();

std::string cache_info();    // {"layers": [..]}
std::string cache_list();    // [{"key", "path", "what", "arch", "bytes", "pinned", "last_used"}]
std::string cache_verify();  // {"checked", "faults": [{"key", "path", "fault"}]}; a folder
                             // that is not used is a fault without a key
// What pruning takes: least recently used kernels that are not pinned, until the limits hold; and
// pinned or not, those that an older NVRTC compiled.
struct CachePruning {
  std::uint64_t max_bytes = UINT64_MAX;  // keep this much
  std::int64_t unused_since = 0;         // keep what was used since; in seconds since the epoch
  std::string older_than_nvrtc;          // "13.0", or empty; else std::invalid_argument
  bool dry_run = false;                  // remove nothing, tell what would go
};
// {"removed", "bytes", "failed", "kept_pinned", "problem", "entries"}: how many went and are
// listed, how many could not and why (a sentence, or empty), how many their pin saved.
std::string cache_prune(const CachePruning& limits);
std::string cache_clear();  // all of the writable folder, pinned or not

// For language bindings: called around work that may block (locks, compiling, loading), so that
// Python's GIL is released first. `enter` returns a token for `leave`.
struct BlockingHooks {
  void* (*enter)() = nullptr;
  void (*leave)(void*) = nullptr;
};
void set_blocking_hooks(BlockingHooks hooks);

// Folders where pip's nvidia-cuda-nvrtc may lie; called by the Python package on import.
void set_python_paths(std::vector<std::string> paths);

// Receives every log line; null = stderr. Levels: 0 error, 1 warning, 2 info, 3 debug.
void set_log_sink(std::function<void(int level, const std::string& text)> sink);

}  // namespace KILN_PUBLIC kiln
