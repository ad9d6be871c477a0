// Temporary, write, sync, rename.
#include "cache/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace kiln::cache {

AtomicFile::AtomicFile(std::filesystem::path target, mode_t mode)
    : target_(std::move(target)),
      temporary_((target_.parent_path() / kTemporaryPrefix).string() + "XXXXXX"),
      fd_(::mkostemp(temporary_.data(), O_CLOEXEC)) {
  if (!fd_) {
    fail("mkostemp");
    temporary_.clear();
  } else if (::fchmod(fd_.get(), mode) != 0) {
    fail("fchmod");
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

bool AtomicFile::write(std::string_view bytes) {
  if (!error_.empty()) return false;
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail("write");
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  while (::fsync(fd_.get()) != 0) {
    if (errno != EINTR) return fail("fsync");
  }
  // Network filesystems report a full disk as late as here.
  if (!fd_.reset()) return fail("close");
  written_ = true;
  return true;
}

bool AtomicFile::commit() {
  if (!error_.empty()) return false;
  if (!written_) {
    error_ = "commit: nothing was written";
    return false;
  }
  const auto rename_it = [&] { return ::rename(temporary_.c_str(), target_.c_str()) == 0; };
  if (!rename_it() && !(errno == EISDIR && move_folder_away() && rename_it())) {
    return fail("rename");
  }
  temporary_.clear();
  return true;
}

// A folder that somebody has put into the place of a file would stay in the way for ever.
bool AtomicFile::move_folder_away() const {
  if (::rmdir(target_.c_str()) == 0) return true;
  const std::string aside = target_.string() + ".moved-away";
  return ::rename(target_.c_str(), aside.c_str()) == 0;
}

bool AtomicFile::fail(const char* call) {
  error_ = std::string(call) + ": " + errno_text(errno);
  return false;
}

}  // namespace kiln::cache
