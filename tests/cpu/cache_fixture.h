// The vocabulary of the cache tests: a folder that vanishes, entries by number, caught warnings,
// and work done in other processes.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "cache/disk_cache.h"

namespace kiln::cache::testing {

namespace fs = std::filesystem;
constexpr uid_t kSomebodyElse = 12345;

inline bool is_root() { return ::geteuid() == 0; }

class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "kiln-cache-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline Key key_of(int number) {
  return KeyBuilder().field("source", "kernel " + std::to_string(number)).finish();
}

inline Entry entry_of(int number, std::size_t cubin_bytes = 3000) {
  Entry entry;
  for (std::size_t i = 0; i < cubin_bytes; ++i) {
    entry.cubin.push_back(static_cast<char>(i * 31 + i / 7 + static_cast<std::size_t>(number)));
  }
  for (int line = 0; line < 100; ++line) {
    entry.ptx += "add.f32 %f" + std::to_string(line * number) + ", %f1, %f2;\n";
  }
  entry.description = {{"what", "kernel " + std::to_string(number)}, {"registers", number}};
  return entry;
}

inline bool same(const Entry& a, const Entry& b) {
  return a.cubin == b.cubin && a.ptx == b.ptx && a.description == b.description;
}

// A cache in a fresh folder, with whatever it warned about. The writable folder does not exist yet.
struct CacheBox {
  TempFolder folder;
  std::mutex mutex;
  std::vector<std::string> warnings;
  CacheOptions options;

  CacheBox() {
    options.directory = folder.path() / "store";
    options.warn = [this](const std::string& text) {
      std::lock_guard lock(mutex);
      warnings.push_back(text);
    };
  }
  fs::path store() const { return options.directory; }
  fs::path file(int number, const std::string& extension) const {
    const std::string hex = key_of(number).hex();
    return store() / hex.substr(0, 2) / (hex.substr(2) + extension);
  }
  bool warned_of(const std::string& words) const {
    for (const auto& text : warnings) {
      if (text.find(words) != std::string::npos) return true;
    }
    return false;
  }
};

inline std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline void set_age(const fs::path& path, std::time_t seconds) {
  struct timespec when[2] = {};
  when[0].tv_sec = when[1].tv_sec = std::time(nullptr) - seconds;
  ::utimensat(AT_FDCWD, path.c_str(), when, 0);
}

inline std::vector<std::string> names_under(const fs::path& root, const std::string& part) {
  std::vector<std::string> names;
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    const std::string name = item.path().filename().string();
    if (name.find(part) != std::string::npos) names.push_back(name);
  }
  return names;
}

// Runs `work` in a forked process, as another user if asked for; returns the process.
inline pid_t start_child(const std::function<bool()>& work, uid_t user = ::geteuid()) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (user != ::geteuid() && ::setuid(user) != 0) ::_exit(2);
  ::_exit(work() ? 0 : 1);
}

inline bool succeeded(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace kiln::cache::testing
