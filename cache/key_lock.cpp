// Polling flock with a deadline: a blocking flock cannot be bounded without signals.
#include "cache/key_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace kiln::cache {

FileLock::FileLock(std::filesystem::path path, double max_wait_seconds, mode_t mode)
    : path_(std::move(path)) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const auto start = Clock::now();
  Seconds pause(0.001);
  while (try_once(mode) == Attempt::kBusy) {
    const Seconds left = Seconds(max_wait_seconds) - (Clock::now() - start);
    if (left.count() <= 0) {
      busy_ = true;
      return;
    }
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min(2 * pause, Seconds(0.05));
  }
}

FileLock::~FileLock() {
  if (!fd_) return;
  // Removed while still held, so that whoever locks the old file sees that it has no name any more.
  // A file that is not empty was made by somebody else.
  struct stat status{};
  if (::fstat(fd_.get(), &status) == 0 && status.st_size == 0) ::unlink(path_.c_str());
  // Explicitly: a process forked meanwhile shares the descriptor and would keep the lock alive.
  ::flock(fd_.get(), LOCK_UN);
}

FileLock::Attempt FileLock::try_once(mode_t mode) {
  UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return Attempt::kHopeless;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK || errno == EINTR ? Attempt::kBusy : Attempt::kHopeless;
  }
  struct stat ours{}, named{};
  const bool current = ::fstat(fd.get(), &ours) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                       ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
  if (!current) return Attempt::kBusy;  // its holder removed it between our open and our flock
  fd_ = std::move(fd);
  return Attempt::kHeld;
}

}  // namespace kiln::cache
