// POSIX files for the disk cache: owned descriptors, checked whole-file reads, errors as values.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace kiln::cache {

class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  bool reset();  // false when close reported an error

 private:
  int fd_;
};

std::string errno_text(int error);  // "No space left on device"

// Whose files are believed.
enum class Trust {
  kOwnerOnly,         // ours, and writable by nobody else
  kNotWorldWritable,  // anybody's, unless all the world could have written it
};

// Why a file or folder of this owner and mode is not believed; empty when it is.
std::string distrust(const struct stat& status, Trust trust);

struct FileRead {
  bool missing = false;  // there is no such file
  std::string fault;     // any other failure; empty when `bytes` holds the file
  std::string bytes;
  bool ok() const { return !missing && fault.empty(); }
};

// Reads a regular file of at most `max_bytes`. Trust is judged on the open descriptor, so that
// what was judged is what is read.
FileRead read_file(const std::filesystem::path& path, Trust trust, std::uint64_t max_bytes);

}  // namespace kiln::cache
