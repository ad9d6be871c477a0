// Trust, creation and paths of one cache folder. Its inventory is in layer_scan.cpp.
#include "cache/layer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "cache/key_lock.h"
#include "cache/own_folder.h"

namespace kiln::cache {
namespace fs = std::filesystem;

namespace {

constexpr mode_t kPermissions = 07777;
constexpr std::time_t kTouchInterval = 3600;
constexpr double kRemoveWaitSeconds = 0.1;

// Without the path, which differs per key: a cause is warned about once.
std::string mkdir_failed(int error) { return "mkdir: " + errno_text(error); }

}  // namespace

Layer::Layer(fs::path root, bool writable, Trust trust, const fs::path& home)
    : writable_(writable), trust_(trust) {
  // Once and for all: the process may change its working directory later.
  std::error_code error;
  root_ = fs::absolute(root, error);
  if (error) root_ = std::move(root);
  // The default folder is one of the cache's own by its name.
  if (trust != Trust::kOwnerOnly) unfit_ = unfit_for_a_cache(root_, home);
}

Layer::Verdict Layer::inspect() const {
  Verdict verdict = inspect(root_);
  if (!verdict.missing && !unfit_.empty()) {
    verdict.fault = unfit_;
    verdict.unfit = true;
  }
  return verdict;
}

bool Layer::may_remove() const { return is_marked(root_); }

Layer::Verdict Layer::inspect(const fs::path& folder) const {
  Verdict verdict;
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) {
    verdict.missing = errno == ENOENT;
    verdict.fault = verdict.missing ? "does not exist" : "cannot be read: " + errno_text(errno);
    return verdict;
  }
  verdict.owner = status.st_uid;
  verdict.mode = status.st_mode & kPermissions;
  if (!S_ISDIR(status.st_mode)) {
    verdict.fault = "is not a folder";
  } else if (verdict.fault = distrust(status, trust_); !verdict.fault.empty()) {
    verdict.distrusted = true;
  } else if (::faccessat(AT_FDCWD, folder.c_str(), R_OK | X_OK, AT_EACCESS) != 0) {
    verdict.fault = "cannot be read: " + errno_text(errno);
  }
  return verdict;
}

std::string Layer::write_fault() const {
  if (!writable_) return "";
  fs::path folder = root_;
  struct stat status{};
  while (::stat(folder.c_str(), &status) != 0 && folder.has_relative_path()) {
    folder = folder.parent_path();  // what the first write creates is decided by what there is
  }
  const int access = ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS);
  if (access == 0 && S_ISDIR(status.st_mode)) return "";
  const std::string why = access == 0 ? errno_text(ENOTDIR) : errno_text(errno);
  return folder == root_ ? "cannot be written: " + why
                         : "cannot be created in " + folder.string() + ": " + why;
}

std::string Layer::make_root() const {
  struct stat status{};
  if (::stat(root_.c_str(), &status) == 0) return "";
  std::error_code error;
  fs::create_directories(root_.parent_path(), error);
  if (error) return "its parent cannot be created: " + error.message();
  // Never world-writable, whatever the umask: such a folder would be refused at once.
  const mode_t mode = trust_ == Trust::kOwnerOnly ? 0700 : 0775;
  if (::mkdir(root_.c_str(), mode) == 0) return "";
  const int failed = errno;
  // Another process may have been faster; a link to nowhere also "exists", but is no folder.
  const bool exists = failed == EEXIST && ::stat(root_.c_str(), &status) == 0;
  return exists ? "" : mkdir_failed(failed);
}

std::string Layer::make_shard(const Key& key) const {
  return make_folder(paths(key).cubin.parent_path());
}

std::string Layer::make_locks() const {
  if (std::string failed = mark_if_empty(root_); !failed.empty()) return failed;
  return make_folder(root_ / "locks");
}

std::string Layer::make_folder(const fs::path& folder) const {
  struct stat root{};
  if (::stat(root_.c_str(), &root) != 0) return mkdir_failed(errno);
  const mode_t mode = (root.st_mode & (S_ISGID | 0775)) | 0700;
  if (::mkdir(folder.c_str(), mode & 0777) == 0) {
    // So that a folder shared by a group works for all of it.
    return set_folder_mode(folder, mode);
  }
  if (errno != EEXIST) return mkdir_failed(errno);
  // Somebody else's folder may lie behind a link.
  if (!is_real_folder(folder)) return "a folder in it is a symbolic link or a file";
  const Verdict verdict = inspect(folder);
  return verdict.fault.empty() ? "" : "a folder in it " + verdict.fault;
}

mode_t Layer::file_mode() const {
  struct stat root{};
  if (::stat(root_.c_str(), &root) != 0) return 0600;
  return (root.st_mode & 0664) | 0600;
}

EntryPaths Layer::paths(const Key& key) const {
  const std::string hex = key.hex();
  const fs::path stem = root_ / hex.substr(0, 2) / hex.substr(2);
  return {.cubin = stem.string() + ".cubin",
          .ptx = stem.string() + ".ptx.z",
          .json = stem.string() + ".json"};
}

fs::path Layer::lock_path(const Key& key, const char* purpose) const {
  return root_ / "locks" / (key.hex() + "." + purpose);
}

Checked<Entry> Layer::read(const Key& key, Payload payload) const {
  const EntryPaths files = paths(key);
  const Verdict shard = inspect(files.cubin.parent_path());
  if (shard.missing) return {.absent = true, .fault = {}, .value = {}};
  if (!shard.usable()) {
    return {.absent = false, .fault = "lies in a folder that " + shard.fault, .value = {}};
  }
  return read_entry(files, key, trust_, payload);
}

void Layer::touch(const Key& key) const {
  const std::string cubin = paths(key).cubin.string();
  struct stat status{};
  if (::stat(cubin.c_str(), &status) != 0) return;
  // A time in the future is of another clock, and is put right.
  if (std::abs(std::time(nullptr) - status.st_mtime) < kTouchInterval) return;
  // Recency only steers pruning: a folder that cannot be written is none that is pruned.
  (void)::utimensat(AT_FDCWD, cubin.c_str(), nullptr, 0);
}

Layer::Removal Layer::remove(const EntryInfo& entry) const {
  // Else a writer could publish between two of our unlinks, and lose half of its new entry.
  (void)make_locks();
  const FileLock lock(lock_path(entry.key, "publish"), kRemoveWaitSeconds, file_mode());
  if (lock.busy()) return Removal::kInUse;
  const EntryPaths files = paths(entry.key);
  struct stat status{};
  if (::stat(files.cubin.c_str(), &status) != 0) return Removal::kGone;
  if (last_use(status.st_mtime) != entry.last_used) return Removal::kInUse;
  // The cubin first: from then on there is no entry.
  if (!remove_in_place(files.cubin)) return Removal::kFailed;
  remove_in_place(files.json);
  remove_in_place(files.ptx);
  return Removal::kRemoved;
}

}  // namespace kiln::cache
