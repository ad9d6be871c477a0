// Folders that cannot be read or written, and disks that are full: a warning, never a failure.
#include <sys/resource.h>

#include <csignal>

#include "cache/atomic_file.h"
#include "tests/cpu/cache_fixture.h"
#include "tests/support/catch.h"

using namespace kiln::cache;
using namespace kiln::cache::testing;

namespace {

// Root passes every permission check, so what tests them runs as somebody else.
uid_t ordinary_user() { return is_root() ? kSomebodyElse : ::geteuid(); }

// Files of this process cannot grow beyond `bytes` while this lives: a full disk for one process.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  struct rlimit before_{};
};

}  // namespace

TEST_CASE("a full disk is a warning, and leaves nothing behind") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  {
    FileSizeLimit limit(1000);
    CHECK_FALSE(cache.put(key_of(2), entry_of(2)));
    CHECK_FALSE(cache.put(key_of(3), entry_of(3)));
    CHECK_FALSE(cache.put(key_of(1), entry_of(9)));
    CHECK(same(cache.get(key_of(1))->entry, entry_of(1)));
  }
  CHECK(box.warnings.size() == 1);
  CHECK(box.warned_of("cannot store a kernel"));
  CHECK(names_under(box.store(), ".tmp-").empty());
  CHECK(cache.list().size() == 1);
  CHECK(cache.put(key_of(2), entry_of(2)));
  CHECK(cache.get(key_of(2)));
}

TEST_CASE("a folder below a regular file is a warning for reader and writer") {
  CacheBox box;
  spill(box.folder.path() / "file", "");
  box.options.directory = box.folder.path() / "file" / "store";
  DiskCache cache(box.options);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK_FALSE(cache.put(key_of(1), entry_of(1)));
  CHECK(cache.lock(key_of(1), 10));
  CHECK(cache.list().empty());
  CHECK(cache.verify().empty());
  CHECK(cache.prune({.max_bytes = 1}).removed.size() == 0);
  CHECK_FALSE(cache.layers()[0].usable);
  CHECK(box.warned_of("Not a directory"));
  CHECK(box.warnings.size() == 2);
}

TEST_CASE("a file or a dangling link in place of the folder is a warning") {
  CacheBox box;
  spill(box.store(), "");
  CHECK_FALSE(DiskCache(box.options).get(key_of(1)));
  CHECK_FALSE(DiskCache(box.options).put(key_of(1), entry_of(1)));
  CHECK(box.warned_of("is not a folder"));
  fs::remove(box.store());
  fs::create_symlink("nowhere", box.store());
  box.warnings.clear();
  CHECK_FALSE(DiskCache(box.options).put(key_of(1), entry_of(1)));
  CHECK(box.warned_of("mkdir: File exists"));
}

TEST_CASE("a folder that this user may read but not write serves hits and warns once") {
  CacheBox box;
  box.options.directory_is_chosen = true;
  fs::create_directory(box.store());
  ::chmod(box.folder.path().c_str(), 0755);
  ::chmod(box.store().c_str(), 0755);
  REQUIRE(DiskCache(box.options).put(key_of(1), entry_of(1)));
  const fs::path shard = box.file(1, ".cubin").parent_path();
  for (const fs::path& path : {box.store(), shard}) ::chmod(path.c_str(), 0555);
  CHECK(succeeded(start_child(
      [&] {
        DiskCache cache(box.options);
        for (int i = 2; i < 4; ++i) {
          const auto lock = cache.lock(key_of(i), 10);
          if (!cache.get(key_of(1)) || cache.put(key_of(i), entry_of(i))) return false;
        }
        if (box.warnings.size() != 1 || !box.warned_of("Permission denied")) return false;
        const LayerInfo layer = cache.layers()[0];  // entries are read all the same
        if (!layer.usable || layer.verdict != "cannot be written: Permission denied") return false;
        const Pruned cleared = cache.clear();
        return cleared.removed.size() == 0 && cleared.failed == 1 && cache.get(key_of(1)) &&
               cleared.problem.find("cannot remove") != std::string::npos;
      },
      ordinary_user())));
  for (const fs::path& path : {box.store(), shard}) ::chmod(path.c_str(), 0700);
}

TEST_CASE("a folder that cannot be created is told before the first write") {
  CacheBox box;
  box.options.directory = box.folder.path() / "file" / "store";
  CHECK(DiskCache(box.options).layers()[0].verdict == "ok");
  spill(box.folder.path() / "file", "");
  const LayerInfo layer = DiskCache(box.options).layers()[0];
  CHECK_FALSE(layer.usable);
  CHECK_FALSE(layer.advice.empty());
  ::chmod(box.folder.path().c_str(), 0755);
  box.options.directory = box.folder.path() / "store";
  CHECK(succeeded(start_child(
      [&] {
        const LayerInfo denied = DiskCache(box.options).layers()[0];
        const std::string where = box.folder.path().string();
        return denied.verdict == "cannot be created in " + where + ": Permission denied" &&
               denied.advice.find("KILN_CACHE_DIR") != std::string::npos;
      },
      ordinary_user())));
}

TEST_CASE("a folder that this user may not read is a warning") {
  CacheBox box;
  box.options.directory_is_chosen = true;
  ::chmod(box.folder.path().c_str(), 0755);
  REQUIRE(DiskCache(box.options).put(key_of(1), entry_of(1)));
  ::chmod(box.store().c_str(), 0000);
  CHECK(succeeded(start_child(
      [&] {
        DiskCache cache(box.options);
        if (cache.get(key_of(1)) || cache.put(key_of(2), entry_of(2))) return false;
        return box.warnings.size() == 1 && box.warned_of("cannot be read: Permission denied");
      },
      ordinary_user())));
  ::chmod(box.store().c_str(), 0700);
}

TEST_CASE("a folder wiped while open is built again") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  const auto lock = cache.lock(key_of(1), 1);
  fs::remove_all(box.store());
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(cache.put(key_of(1), entry_of(1)));
  CHECK(cache.get(key_of(1)));
  CHECK(box.warnings.empty());
}

TEST_CASE("a warning that throws does not fail the call") {
  CacheBox box;
  box.options.read_only = {box.folder.path() / "nowhere"};
  box.options.warn = [](const std::string&) { throw std::runtime_error("no log"); };
  CHECK_FALSE(DiskCache(box.options).get(key_of(1)));
  box.options.warn = nullptr;
  CHECK_FALSE(DiskCache(box.options).get(key_of(1)));
}

TEST_CASE("an atomic file appears only when it is committed") {
  TempFolder folder;
  const fs::path target = folder.path() / "target";
  {
    AtomicFile file(target, 0640);
    CHECK(file.write("text"));
  }
  CHECK(fs::is_empty(folder.path()));
  AtomicFile file(target, 0640);
  CHECK(file.write("text"));
  CHECK_FALSE(fs::exists(target));
  CHECK(file.commit());
  CHECK(slurp(target) == "text");
  CHECK_FALSE(AtomicFile(target, 0600).commit());  // nothing was written
  CHECK(slurp(target) == "text");
  AtomicFile lost(folder.path() / "missing" / "target", 0600);
  CHECK_FALSE(lost.write("text"));
  CHECK_FALSE(lost.commit());
  CHECK(lost.error() == "mkostemp: No such file or directory");
}
