// Owned descriptors, trust by owner and mode, and checked whole-file reads.
#include "cache/file_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace kiln::cache {
namespace {

bool read_all(int fd, std::string& bytes) {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(fd, bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  bytes.resize(filled);
  return true;
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

bool UniqueFd::reset() {
  const int fd = std::exchange(fd_, -1);
  return fd < 0 || ::close(fd) == 0;
}

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string distrust(const struct stat& status, Trust trust) {
  if (trust == Trust::kNotWorldWritable) {
    return (status.st_mode & S_IWOTH) != 0 ? "is writable by everybody" : "";
  }
  if (status.st_uid != ::geteuid()) {
    return "is owned by another user (uid " + std::to_string(status.st_uid) + ")";
  }
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "is writable by other users" : "";
}

FileRead read_file(const std::filesystem::path& path, Trust trust, std::uint64_t max_bytes) {
  FileRead read;
  // O_NONBLOCK: opening a named pipe somebody put there must not hang the caller.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    read.missing = errno == ENOENT;
    if (!read.missing) read.fault = "cannot be read: " + errno_text(errno);
    return read;
  }
  if (!S_ISREG(status.st_mode)) {
    read.fault = "is not a regular file";
  } else if (std::string why = distrust(status, trust); !why.empty()) {
    read.fault = std::move(why);
  } else if (static_cast<std::uint64_t>(status.st_size) > max_bytes) {
    read.fault = "is larger than recorded";
  } else {
    read.bytes.resize(static_cast<std::size_t>(status.st_size));
    if (!read_all(fd.get(), read.bytes)) read.fault = "cannot be read: " + errno_text(errno);
  }
  return read;
}

}  // namespace kiln::cache
