// Whose folders and entries are believed. Ownership needs root to arrange; modes do not.
#include "tests/cpu/cache_fixture.h"
#include "tests/support/catch.h"

using namespace kiln::cache;
using namespace kiln::cache::testing;

namespace {

unsigned mode_of(const fs::path& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

}  // namespace

TEST_CASE("the default folder is private, whatever the umask") {
  CacheBox box;
  const mode_t umask_before = ::umask(0);
  const bool stored = DiskCache(box.options).put(key_of(1), entry_of(1));
  ::umask(umask_before);
  CHECK(stored);
  CHECK(mode_of(box.store()) == 0700);
  CHECK(mode_of(box.file(1, ".cubin").parent_path()) == 0700);
  CHECK(mode_of(box.file(1, ".cubin")) == 0600);
}

TEST_CASE("a default folder that others can write is refused, once and in words") {
  CacheBox box;
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  for (const mode_t mode : {0720, 0702, 0777}) {
    ::chmod(box.store().c_str(), mode);
    CHECK_FALSE(cache.get(key_of(1)));
    CHECK_FALSE(cache.put(key_of(2), entry_of(2)));
    CHECK_FALSE(cache.layers()[0].usable);
    CHECK(cache.clear().problem.find("name it in KILN_CACHE_DIR") != std::string::npos);
  }
  REQUIRE(box.warnings.size() == 1);
  CHECK(box.warned_of("is writable by other users"));
  ::chmod(box.store().c_str(), 0755);
  CHECK(cache.get(key_of(1)));
}

TEST_CASE("a chosen folder that everybody can write is refused with a cure of its own") {
  CacheBox box;
  box.options.directory_is_chosen = true;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  ::chmod(box.store().c_str(), 0777);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(box.warned_of("chmod -R o-w"));
  CHECK_FALSE(box.warned_of("KILN_CACHE_DIR"));
}

TEST_CASE("an entry in the default folder that others can write is refused") {
  CacheBox box;
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  for (const char* extension : {".cubin", ".ptx.z", ".json"}) {
    ::chmod(box.file(1, extension).c_str(), 0660);
    CHECK_FALSE(cache.get(key_of(1)));
    ::chmod(box.file(1, extension).c_str(), 0600);
  }
  ::chmod(box.file(1, ".cubin").parent_path().c_str(), 0770);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK_FALSE(cache.put(key_of(1), entry_of(1)));
  CHECK(box.warned_of("writable by other users"));
}

TEST_CASE("a default folder or entry of another user is refused") {
  CacheBox box;
  if (!is_root()) {
    box.options.directory = "/usr";  // root's
    CHECK_FALSE(DiskCache(box.options).layers()[0].usable);
    CHECK(DiskCache(box.options).layers()[0].verdict == "is owned by another user (uid 0)");
    return;
  }
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  REQUIRE(::chown(box.file(1, ".cubin").c_str(), kSomebodyElse, 0) == 0);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(box.warned_of("cubin that is owned by another user (uid 12345)"));
  REQUIRE(cache.put(key_of(1), entry_of(1)));  // ours replaces theirs
  CHECK(cache.get(key_of(1)));
  REQUIRE(::chown(box.store().c_str(), kSomebodyElse, 0) == 0);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK_FALSE(cache.put(key_of(1), entry_of(1)));
  CHECK(cache.layers()[0].owner == "12345");
}

TEST_CASE("a chosen folder is trusted for a group and for other owners, not for all the world") {
  CacheBox box;
  box.options.directory_is_chosen = true;
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  ::chmod(box.store().c_str(), 0775);
  ::chmod(box.file(1, ".cubin").c_str(), 0664);
  if (is_root()) {
    REQUIRE(::chown(box.store().c_str(), kSomebodyElse, 0) == 0);
    REQUIRE(::chown(box.file(1, ".json").c_str(), kSomebodyElse, 0) == 0);
  }
  CHECK(cache.get(key_of(1)));
  CHECK(cache.put(key_of(2), entry_of(2)));
  CHECK(box.warnings.empty());
  ::chmod(box.file(1, ".cubin").c_str(), 0666);
  CHECK_FALSE(cache.get(key_of(1)));
  ::chmod(box.store().c_str(), 0777);
  CHECK_FALSE(cache.get(key_of(2)));
  CHECK_FALSE(cache.put(key_of(3), entry_of(3)));
  CHECK(box.warned_of("is writable by everybody"));
}

TEST_CASE("a read-only layer is refused only when all the world could have written it") {
  CacheBox box;
  DiskCache(box.options).put(key_of(1), entry_of(1));
  if (is_root()) REQUIRE(::chown(box.store().c_str(), kSomebodyElse, 0) == 0);
  box.options.read_only = {box.store()};
  box.options.directory.clear();
  DiskCache cache(box.options);
  CHECK(cache.get(key_of(1)));
  ::chmod(box.options.read_only[0].c_str(), 01777);  // a sticky bit does not help readers
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(box.warned_of("is writable by everybody"));
}

TEST_CASE("a chosen folder is as readable as its owner made it") {
  CacheBox box;
  box.options.directory_is_chosen = true;
  fs::create_directory(box.store());
  ::chmod(box.store().c_str(), 0755);
  const mode_t umask_before = ::umask(077);
  DiskCache(box.options).put(key_of(1), entry_of(1));
  ::chmod(box.store().c_str(), 02775);
  DiskCache(box.options).put(key_of(2), entry_of(2));
  ::umask(umask_before);
  CHECK(mode_of(box.file(1, ".json").parent_path()) == 0755);
  CHECK(mode_of(box.file(1, ".json")) == 0644);
  CHECK(mode_of(box.file(2, ".json").parent_path()) == 0775);
  CHECK(mode_of(box.file(2, ".json")) == 0664);
}

TEST_CASE("a named pipe in place of a file is refused, not waited on") {
  CacheBox box;
  DiskCache cache(box.options);
  cache.put(key_of(1), entry_of(1));
  fs::remove(box.file(1, ".json"));
  REQUIRE(::mkfifo(box.file(1, ".json").c_str(), 0600) == 0);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(box.warned_of("is not a regular file"));
}
