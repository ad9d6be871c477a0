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

class Layer {
 public:
  Layer(std::filesystem::path root, bool writable, Trust trust);

  const std::filesystem::path& root() const { return root_; }
  bool writable() const { return writable_; }
  Trust trust() const { return trust_; }

  // `fault` is a sentence's tail ("is writable by everybody"), empty when the folder may be used.
  struct Verdict {
    bool missing = false;
    bool distrusted = false;  // the fault is one of owner or mode
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
  std::string make_locks() const;
  mode_t file_mode() const;  // files may be read by whoever may read the folder

  EntryPaths paths(const Key& key) const;
  std::filesystem::path lock_path(const Key& key, const char* purpose) const;
  Checked<Entry> read(const Key& key, Payload payload) const;
  void touch(const Key& key) const;  // records a use, at most once an hour
  enum class Removal { kRemoved, kGone, kInUse, kFailed };
  // Leaves an entry alone that was used or replaced since it was listed.
  Removal remove(const EntryInfo& entry) const;

  struct Scan {
    std::vector<EntryInfo> entries;  // without what only the side file tells
    std::uint64_t bytes = 0;
    std::vector<std::filesystem::path> litter;  // of killed writers, over an hour old
  };
  Scan scan() const;

 private:
  Verdict inspect(const std::filesystem::path& folder) const;
  std::string make_folder(const std::filesystem::path& folder) const;
  void scan_shard(const std::filesystem::path& folder, Scan& scan) const;
  void scan_locks(Scan& scan) const;

  std::filesystem::path root_;
  bool writable_;
  Trust trust_;
};

}  // namespace kiln::cache
