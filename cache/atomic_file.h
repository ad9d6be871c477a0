// A file that appears under its name whole or not at all: a private temporary in the same folder,
// written, synced, and renamed by `commit`. The destructor removes what was not committed and
// never renames, so that an early return cannot publish half a file. A folder that lies in the
// target's place is removed if it is empty, and else renamed.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "cache/file_io.h"

namespace kiln::cache {

// Temporaries start with this; what a killed process left behind is swept by its age.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

class AtomicFile {
 public:
  // Opens the temporary beside `target`, readable by others as far as `mode` says once committed.
  AtomicFile(std::filesystem::path target, mode_t mode);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Both false after a failure, then and for ever; `error` says which. `write` also syncs.
  bool write(std::string_view bytes);
  bool commit();
  const std::string& error() const { return error_; }

 private:
  bool move_folder_away() const;
  bool fail(const char* call);

  std::filesystem::path target_;
  std::string temporary_;
  UniqueFd fd_;
  std::string error_;
  bool written_ = false;
};

}  // namespace kiln::cache
