// A content-addressed store of compiled kernels: one writable folder and read-only layers after it.
//
// Layout of a folder: ab/cdef….cubin, .ptx.z and .json, where abcdef… is the key in hex. Files are
// written to private temporaries, synced and renamed, the cubin last: its rename is the commit.
// The file .kiln-cache marks a folder that the cache has made, or has found empty. From a folder
// without it entries are read, and may be added, but nothing is ever removed.
// Whatever is missing, truncated, altered or unreadable is a miss; no fault of the cache fails a
// call: the worst is a warning (once per cause) through `warn`. Nothing throws, except bad_alloc
// and what the caller's own `expired` throws. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/entry.h"
#include "cache/key.h"

namespace kiln::cache {

struct LayerInfo {
  std::filesystem::path path;
  bool writable = false;
  bool usable = false;
  std::string verdict;  // what is wrong with it, or "ok"
  std::string advice;   // what to do about that, a sentence; else empty
  std::string warning;  // why somebody else may have prepared it, a sentence; else empty
  std::string owner;    // empty for a folder that does not exist
  unsigned mode = 0;    // permission bits
  std::uint64_t entries = 0, bytes = 0;
};

struct EntryInfo {
  Key key;
  std::filesystem::path path;  // of the cubin
  std::size_t layer = 0;
  std::uint64_t bytes = 0;
  bool pinned = false;
  std::int64_t last_used = 0;  // seconds since the epoch; at most an hour stale
  nlohmann::json description;
};

struct VerifyResult {
  Key key;
  std::filesystem::path path;
  std::string fault;  // empty when sound
};

// What may go. Pinned entries stay, but for those that `expired` names.
struct PruneOptions {
  std::uint64_t max_bytes = UINT64_MAX;  // least recently used go until the rest fits (0 = none)
  std::int64_t unused_since = 0;         // those not used since go; in seconds since the epoch
  std::function<bool(const EntryInfo&)> expired = nullptr;
  bool dry_run = false;  // only tell what would go
};

struct Pruned {
  std::vector<EntryInfo> removed;
  std::size_t failed = 0;       // entries that could not be removed
  std::size_t in_use = 0;       // what was locked, or used or replaced meanwhile, and stays
  std::size_t kept_pinned = 0;  // what the limits would have taken, had it not been pinned
  std::string problem;          // why entries, or the whole folder, were left alone; else empty
};

struct Hit {
  Entry entry;
  std::size_t layer = 0;  // 0 is the writable folder when there is one
};

struct CacheOptions {
  // Empty = no writable layer. Created at the first write: the default folder with mode 0700, a
  // chosen one as the umask says. Files in it are readable by whoever may read the folder itself.
  std::filesystem::path directory;
  // True when the user chose `directory`: then it is trusted unless world-writable. The default
  // folder is refused when it or an entry is owned by, or writable by, somebody else.
  bool directory_is_chosen = false;
  // The user's home folder as the environment names it. No home folder, and no folder of the
  // system, is used as a cache.
  std::filesystem::path home;
  std::vector<std::filesystem::path> read_only;  // trusted unless world-writable
  // 0 = unlimited; else least recently used go first. Processes that write at the same time may go
  // over it by an eighth each until they look again.
  std::uint64_t max_bytes = 0;
  // May be null. It may call Kiln, as the cache holds no lock of its own meanwhile. But its caller
  // may hold a KeyLock and be building that kernel: `warn` must not ask for the same one.
  std::function<void(const std::string&)> warn;
};

// How much of an entry a reader needs. A CUDA device never looks at the PTX; inflating and
// checking it takes longer than all the rest of a hit.
enum class Payload { kCubin, kCubinAndPtx };

class DiskCache {
 public:
  explicit DiskCache(CacheOptions options);
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // The first layer with a sound entry wins. With kCubin, `entry.ptx` stays empty and unchecked.
  std::optional<Hit> get(const Key& key, Payload payload = Payload::kCubinAndPtx);
  // Best effort: false (after a warning, unless there is no writable layer) when the entry could
  // not be published. A pinned entry survives pruning, and stays pinned when it is put again.
  bool put(const Key& key, const Entry& entry, bool pinned = false);

  // Pins what the writable layer holds; cheap when it is pinned already. False when it holds none.
  bool pin(const Key& key);

  // An advisory lock over processes so that one of them compiles a key. Never waits longer than
  // `max_wait_seconds`; returns an object in every case, and correctness never depends on it.
  class KeyLock {
   public:
    virtual ~KeyLock() = default;
  };
  std::unique_ptr<KeyLock> lock(const Key& key, double max_wait_seconds);

  std::size_t layer_count() const;
  const std::filesystem::path& layer_root(std::size_t layer) const;  // of a Hit
  std::vector<LayerInfo> layers() const;                             // scans them
  std::vector<EntryInfo> list() const;
  std::vector<VerifyResult> verify() const;
  // Both touch the writable layer only. `clear` removes all, pinned ones too.
  Pruned prune(const PruneOptions& options);
  Pruned clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln::cache
