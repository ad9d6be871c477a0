#include "cache/own_folder.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cache/file_io.h"

namespace kiln::cache {
namespace fs = std::filesystem;

namespace {

// Each entry of a cache lies in a sub-folder of two letters, and old files are removed from there:
// that must never happen in a folder with another purpose.
constexpr const char* kSystemFolders[] = {"/",     "/bin", "/boot", "/dev", "/etc", "/home", "/lib",
                                          "/proc", "/run", "/sbin", "/sys", "/usr", "/var"};

bool is_same(const struct stat& folder, const fs::path& other) {
  struct stat status{};
  return !other.empty() && ::stat(other.c_str(), &status) == 0 && status.st_dev == folder.st_dev &&
         status.st_ino == folder.st_ino;
}

}  // namespace

User user_of(unsigned id) {
  std::array<char, 4096> buffer;
  struct passwd entry{};
  struct passwd* found = nullptr;
  const int status = ::getpwuid_r(id, &entry, buffer.data(), buffer.size(), &found);
  if (status != 0 || found == nullptr) return {.name = std::to_string(id), .home = {}};
  return {.name = found->pw_name, .home = found->pw_dir};
}

bool is_empty_folder(const fs::path& root) {
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != "lost+found") return false;
  }
  return !error;
}

bool is_marked(const fs::path& root) {
  struct stat status{};
  return ::lstat((root / kMarkerName).c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string mark_if_empty(const fs::path& root) {
  if (is_marked(root) || !is_empty_folder(root)) return "";
  const UniqueFd fd(::open((root / kMarkerName).c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  // Another process may have been faster.
  return fd || errno == EEXIST ? "" : "open: " + errno_text(errno);
}

std::string unfit_for_a_cache(const fs::path& root, const fs::path& home) {
  struct stat status{};
  if (::stat(root.c_str(), &status) != 0) return "";
  for (const char* folder : kSystemFolders) {
    if (is_same(status, folder)) return "is a folder of the system";
  }
  const fs::path homes[] = {home, user_of(::geteuid()).home, user_of(status.st_uid).home};
  for (const fs::path& folder : homes) {
    if (is_same(status, folder)) return "is a home folder";
  }
  return "";
}

std::string planted(const fs::path& root) {
  std::error_code error;
  fs::path folder = fs::weakly_canonical(root, error);
  if (error) return "";
  struct stat status{}, above{};
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    const fs::path parent = folder.parent_path();
    if (::stat(folder.c_str(), &status) != 0 || ::stat(parent.c_str(), &above) != 0) continue;
    const bool is_open = (above.st_mode & S_ISVTX) != 0 && (above.st_mode & S_IWOTH) != 0;
    if (is_open && status.st_uid != 0 && status.st_uid != ::geteuid()) {
      return "was created by the user " + user_of(status.st_uid).name + " (" + folder.string() +
             ") in " + parent.string() + ", where every user may create folders";
    }
  }
  return "";
}

bool is_real_folder(const fs::path& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string set_folder_mode(const fs::path& folder, unsigned mode) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) return "open: " + errno_text(errno);
  if (status.st_uid != ::geteuid()) return "chmod: " + errno_text(EPERM);
  return ::fchmod(fd.get(), mode) == 0 ? "" : "chmod: " + errno_text(errno);
}

bool remove_in_place(const fs::path& file) {
  const UniqueFd folder(
      ::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return folder && ::unlinkat(folder.get(), file.filename().c_str(), 0) == 0;
}

}  // namespace kiln::cache
