// The inventory of a cache folder: entries with their sizes and ages, and litter. Only names that
// Kiln gives are listed, and nothing behind a symbolic link.
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "cache/atomic_file.h"
#include "cache/layer.h"
#include "cache/own_folder.h"

namespace kiln::cache {
namespace fs = std::filesystem;

namespace {

constexpr std::time_t kLitterAge = 3600;
constexpr std::int64_t kClockSkew = 3600;

struct Group {
  std::vector<Layer::Scan::Litter> files;
  fs::path cubin;
  std::uint64_t bytes = 0;
  std::time_t newest = 0, used = 0;
};

bool is_old(std::time_t when) { return std::time(nullptr) - last_use(when) > kLitterAge; }

std::uint64_t size_of(const struct stat& status) {
  return static_cast<std::uint64_t>(status.st_size);
}

bool is_shard_name(const std::string& name) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return name.size() == 2 && std::all_of(name.begin(), name.end(), is_hex);
}

// The key of a file that belongs to an entry.
std::optional<Key> key_of(const std::string& shard, const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string_view extension = std::string_view(name).substr(dot);
  if (extension != ".cubin" && extension != ".ptx.z" && extension != ".json") return std::nullopt;
  return Key::from_hex(shard + name.substr(0, dot));
}

// Calls visit(path, name, status) for each regular file; a folder that vanished has none.
template <class Visit>
void for_each_file(const fs::path& folder, Visit&& visit) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    struct stat status{};
    const fs::path& path = it->path();
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    visit(path, path.filename().string(), status);
  }
}

}  // namespace

std::int64_t last_use(std::int64_t modified) {
  return modified > std::time(nullptr) + kClockSkew ? 0 : modified;
}

Layer::Scan Layer::scan() const {
  Scan result;
  std::error_code error;
  std::set<fs::path> shards;  // sorted, so that listings are the same everywhere
  for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (is_shard_name(path.filename().string()) && is_real_folder(path)) shards.insert(path);
  }
  for (const fs::path& shard : shards) scan_shard(shard, result);
  scan_locks(result);
  return result;
}

void Layer::scan_shard(const fs::path& folder, Scan& scan) const {
  std::map<Key, Group> groups;
  const std::string shard = folder.filename().string();
  for_each_file(folder, [&](const fs::path& path, const std::string& name, const auto& status) {
    if (name.starts_with(kTemporaryPrefix)) {
      scan.bytes += size_of(status);
      if (is_old(status.st_mtime)) {
        scan.litter.push_back({path, size_of(status)});
      } else {
        scan.unfinished += size_of(status);
      }
      return;
    }
    const std::optional<Key> key = key_of(shard, name);
    if (!key) return;
    Group& group = groups[*key];
    group.files.push_back({path, size_of(status)});
    group.bytes += size_of(status);
    group.newest = std::max(group.newest, status.st_mtime);
    if (path.extension() == ".cubin") {
      group.cubin = path;
      group.used = status.st_mtime;
    }
  });
  for (auto& [key, group] : groups) {
    scan.bytes += group.bytes;
    if (group.cubin.empty()) {  // never committed, or half removed
      if (is_old(group.newest)) {
        scan.litter.insert(scan.litter.end(), group.files.begin(), group.files.end());
      } else {
        scan.unfinished += group.bytes;
      }
      continue;
    }
    EntryInfo entry;
    entry.key = key;
    entry.path = group.cubin;
    entry.bytes = group.bytes;
    entry.last_used = last_use(group.used);
    entry.description = nlohmann::json::object();
    scan.entries.push_back(std::move(entry));
  }
}

void Layer::scan_locks(Scan& scan) const {
  if (!is_real_folder(root_ / "locks")) return;
  for_each_file(root_ / "locks", [&](const fs::path& path, const std::string& name, const auto& s) {
    const bool ours = Key::from_hex(name.substr(0, name.find('.'))).has_value();
    // A lock is an empty file.
    if (ours && s.st_size == 0 && is_old(s.st_mtime)) scan.litter.push_back({path, 0});
  });
}

}  // namespace kiln::cache
