// One folder of the disk cache: where files lie, whether the folder is believed, what is in it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/disk_cache.h"
#include "cache/entry_file.h"
#include "cache/file_io.h"

namespace kiln::cache {

// When an entry was used last, by the modification time of its cubin. What lies more than an hour
// in the future tells nothing, and counts as never.
std::int64_t last_use(std::int64_t modified);

class Layer {
 public:
  // `home` is what the environment calls the user's home folder, in which no cache may lie.
  Layer(std::filesystem::path root, bool writable, Trust trust,
        const std::filesystem::path& home = {});

  const std::filesystem::path& root() const { return root_; }
  bool writable() const { return writable_; }
  Trust trust() const { return trust_; }

  // `fault` is a sentence's tail ("is writable by everybody"), empty when the folder may be used.
  struct Verdict {
    bool missing = false;
    bool distrusted = false;  // the fault is one of owner or mode
    bool unfit = false;       // the folder has another purpose
    std::string fault;
    uid_t owner = 0;
    mode_t mode = 0;  // permission bits
    bool usable() const { return !missing && fault.empty(); }
  };
  Verdict inspect() const;

  // Why a writable folder cannot be written, or created where it is missing; else empty.
  std::string write_fault() const;

  // The folder (or its locks) made ready for writing; returns what failed, or an empty string.
  std::string make_root() const;
  std::string make_shard(const Key& key) const;
  std::string make_locks() const;  // marks the folder as ours, if it is empty
  mode_t file_mode() const;        // files may be read by whoever may read the folder

  EntryPaths paths(const Key& key) const;
  std::filesystem::path lock_path(const Key& key, const char* purpose) const;
  Checked<Entry> read(const Key& key, Payload payload) const;
  // Whether the folder carries our mark. Else nothing is removed from it.
  bool may_remove() const;
  void touch(const Key& key) const;  // records a use, at most once an hour
  enum class Removal { kRemoved, kGone, kInUse, kFailed };
  // Requires: may_remove(). Leaves an entry alone that was used or replaced since it was listed.
  Removal remove(const EntryInfo& entry) const;

  struct Scan {
    std::vector<EntryInfo> entries;  // without what only the side file tells
    std::uint64_t bytes = 0;         // with temporaries and uncommitted files
    std::uint64_t unfinished = 0;    // of these, what others may be writing now
    struct Litter {                  // of killed writers, over an hour old
      std::filesystem::path path;
      std::uint64_t bytes = 0;
    };
    std::vector<Litter> litter;
  };
  Scan scan() const;

 private:
  Verdict inspect(const std::filesystem::path& folder) const;
  std::string make_folder(const std::filesystem::path& folder) const;
  void scan_shard(const std::filesystem::path& folder, Scan& scan) const;
  void scan_locks(Scan& scan) const;

  std::filesystem::path root_;
  std::string unfit_;  // why the folder can be no cache, or empty
  bool writable_;
  Trust trust_;
};

}  // namespace kiln::cache
