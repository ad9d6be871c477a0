// Advisory locks between processes (and threads): flock on a small file that the holder removes.
// They save duplicate work; nothing may rely on having one.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "cache/file_io.h"

namespace kiln::cache {

class FileLock {
 public:
  FileLock() = default;
  // Tries for at most `max_wait_seconds`. A filesystem that cannot lock gives no lock, at once.
  FileLock(std::filesystem::path path, double max_wait_seconds, mode_t mode);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return static_cast<bool>(fd_); }
  bool busy() const { return busy_; }  // somebody else held it to the end of the wait

 private:
  enum class Attempt { kHeld, kBusy, kHopeless };
  Attempt try_once(mode_t mode);

  std::filesystem::path path_;
  UniqueFd fd_;
  bool busy_ = false;
};

}  // namespace kiln::cache
