// Keeping the folder small: recency, pins, litter, and nothing of anybody else's.
#include <chrono>

#include "cache/key_lock.h"
#include "tests/cpu/cache_fixture.h"
#include "tests/support/catch.h"

using namespace kiln::cache;
using namespace kiln::cache::testing;
using namespace std::chrono_literals;

namespace {

// Entries 1..count, the lowest number used longest ago.
void fill(CacheBox& box, DiskCache& cache, int count) {
  for (int i = 1; i <= count; ++i) {
    REQUIRE(cache.put(key_of(i), entry_of(i)));
    set_age(box.file(i, ".cubin"), 100000 - 1000 * i);
  }
}

std::uint64_t total(const DiskCache& cache) { return cache.layers()[0].bytes; }

}  // namespace

TEST_CASE("pruning removes the least recently used first, until the limit holds") {
  CacheBox box;
  DiskCache cache(box.options);
  fill(box, cache, 5);
  const std::uint64_t all = total(cache);
  CHECK(cache.prune({.max_bytes = all}).removed.size() == 0);
  CHECK(cache.prune({.max_bytes = all - 1}).removed.size() == 1);
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(cache.prune({.max_bytes = all / 2}).removed.size() == 2);
  CHECK(cache.get(key_of(4)));
  CHECK(cache.get(key_of(5)));
  CHECK(total(cache) <= all / 2);
  CHECK(names_under(box.store(), key_of(1).hex().substr(2)).empty());
  CHECK(cache.prune({.max_bytes = 0}).removed.size() == 2);
  CHECK(cache.list().empty());
}

TEST_CASE("using an entry makes it recent, at most once an hour") {
  CacheBox box;
  DiskCache cache(box.options);
  fill(box, cache, 2);
  REQUIRE(cache.get(key_of(1)));
  CHECK(cache.prune({.max_bytes = total(cache) - 1}).removed.size() == 1);
  CHECK(cache.get(key_of(1)));

  set_age(box.file(1, ".cubin"), 3000);
  const auto before = fs::last_write_time(box.file(1, ".cubin"));
  REQUIRE(cache.get(key_of(1)));
  CHECK(fs::last_write_time(box.file(1, ".cubin")) == before);
  set_age(box.file(1, ".cubin"), 4000);
  REQUIRE(cache.get(key_of(1)));
  CHECK(cache.list()[0].last_used >= std::time(nullptr) - 60);
}

TEST_CASE("writing over the limit prunes, never the entry just written") {
  CacheBox box;
  {
    DiskCache cache(box.options);
    fill(box, cache, 4);
    box.options.max_bytes = total(cache) + 10;
  }
  DiskCache cache(box.options);
  CHECK(cache.put(key_of(5), entry_of(5)));
  CHECK_FALSE(cache.get(key_of(1)));
  CHECK(cache.get(key_of(5)));
  CHECK(total(cache) <= box.options.max_bytes);
  CHECK(box.warnings.empty());

  box.options.max_bytes = 1;
  DiskCache tiny(box.options);
  CHECK(tiny.put(key_of(6), entry_of(6)));
  CHECK(tiny.get(key_of(6)));
  CHECK(tiny.list().size() == 1);
  CHECK(box.warned_of("KILN_CACHE_MAX_SIZE"));
}

TEST_CASE("pinned entries survive pruning, also after they are put again") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1), /*pinned=*/true));
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  REQUIRE(cache.put(key_of(2), entry_of(2)));
  set_age(box.file(1, ".cubin"), 100000);
  CHECK(cache.prune({.max_bytes = 1}).removed.size() == 1);
  CHECK(cache.get(key_of(1)));
  CHECK_FALSE(cache.get(key_of(2)));
}

TEST_CASE("entries that the caller calls expired go, pinned or not, and only those") {
  CacheBox box;
  DiskCache cache(box.options);
  for (int i = 1; i <= 3; ++i) cache.put(key_of(i), entry_of(i), /*pinned=*/i == 2);
  const auto old = [](const EntryInfo& entry) { return entry.description["registers"] < 3; };
  CHECK(cache.prune({.expired = old}).removed.size() == 2);
  REQUIRE(cache.list().size() == 1);
  CHECK(cache.list()[0].key == key_of(3));
}

TEST_CASE("what was not used for long goes, but for pinned entries, which are counted") {
  CacheBox box;
  DiskCache cache(box.options);
  fill(box, cache, 3);  // used 99000, 98000 and 97000 seconds ago
  REQUIRE(cache.pin(key_of(1)));
  set_age(box.file(1, ".cubin"), 99000);
  const Pruned pruned = cache.prune({.unused_since = std::time(nullptr) - 97500});
  REQUIRE(pruned.removed.size() == 1);
  CHECK(pruned.removed[0].key == key_of(2));
  CHECK(pruned.removed[0].description["registers"] == 2);
  CHECK(pruned.kept_pinned == 1);
  CHECK(cache.list().size() == 2);
}

TEST_CASE("a dry run tells what would go and removes nothing") {
  CacheBox box;
  DiskCache cache(box.options);
  fill(box, cache, 4);
  const fs::path litter = box.file(1, ".cubin").parent_path() / ".tmp-old";
  spill(litter, "x");
  set_age(litter, 4000);
  PruneOptions options{.max_bytes = total(cache) / 2, .dry_run = true};
  const Pruned foretold = cache.prune(options);
  REQUIRE(foretold.removed.size() == 3);
  CHECK(cache.list().size() == 4);
  CHECK(fs::exists(litter));
  options.dry_run = false;
  const Pruned pruned = cache.prune(options);
  REQUIRE(pruned.removed.size() == 3);
  for (int i : {0, 1, 2}) CHECK(pruned.removed[i].key == foretold.removed[i].key);
}

TEST_CASE("clearing removes every entry and nothing else") {
  CacheBox box;
  DiskCache cache(box.options);
  fill(box, cache, 3);
  cache.put(key_of(4), entry_of(4), /*pinned=*/true);
  const fs::path shard = box.file(1, ".cubin").parent_path();
  spill(box.store() / "notes.txt", "mine");
  spill(shard / "photo.cubin", "mine");
  CHECK(cache.clear().removed.size() == 4);
  CHECK(cache.list().empty());
  CHECK(names_under(box.store(), ".json").empty());
  CHECK(slurp(box.store() / "notes.txt") == "mine");
  CHECK(slurp(shard / "photo.cubin") == "mine");
  CHECK(cache.put(key_of(1), entry_of(1)));
}

TEST_CASE("what killed writers left behind is swept after an hour") {
  CacheBox box;
  DiskCache(box.options).put(key_of(1), entry_of(1));
  DiskCache(box.options).put(key_of(2), entry_of(2));
  const fs::path shard = box.file(1, ".cubin").parent_path();
  const fs::path lock = box.store() / "locks" / (key_of(1).hex() + ".compile");
  const fs::path foreign = box.store() / "locks" / "foreign.lock";
  for (const auto& path : {shard / ".tmp-old", shard / ".tmp-new", foreign}) spill(path, "x");
  spill(lock, "");
  for (const auto& path : {shard / ".tmp-old", lock, foreign}) set_age(path, 4000);
  fs::remove(box.file(2, ".cubin"));  // never committed
  set_age(box.file(2, ".ptx.z"), 4000);
  set_age(box.file(2, ".json"), 4000);
  DiskCache(box.options).put(key_of(3), entry_of(3));  // the first write of a process sweeps
  CHECK_FALSE(fs::exists(shard / ".tmp-old"));
  CHECK(fs::exists(shard / ".tmp-new"));
  CHECK_FALSE(fs::exists(lock));
  CHECK(fs::exists(foreign));
  CHECK_FALSE(fs::exists(box.file(2, ".json")));
  CHECK(DiskCache(box.options).get(key_of(1)));
}

TEST_CASE("an entry that another process has locked stays, and clearing says so") {
  CacheBox box;
  DiskCache cache(box.options);
  fill(box, cache, 2);
  const fs::path path = box.store() / "locks" / (key_of(1).hex() + ".publish");
  {
    const FileLock lock(path, 0, 0600);
    REQUIRE(lock.held());
    const Pruned pruned = cache.clear();
    CHECK(pruned.removed.size() == 1);
    CHECK(pruned.in_use == 1);
    CHECK(pruned.problem ==
          "not every entry was removed, as other processes were using some (1): clear the cache "
          "again");
  }
  const Pruned pruned = cache.clear();
  CHECK((pruned.removed.size() == 1 && pruned.problem.empty()));
}

TEST_CASE("a use in the future is no use, and is put right by the next") {
  CacheBox box;
  DiskCache cache(box.options);
  fill(box, cache, 3);
  set_age(box.file(2, ".cubin"), -1000000);
  CHECK(cache.prune({.max_bytes = total(cache) - 1, .dry_run = true}).removed[0].key == key_of(2));
  REQUIRE(cache.get(key_of(2)));
  CHECK(fs::last_write_time(box.file(2, ".cubin")) < fs::file_time_type::clock::now() + 1min);
  CHECK(cache.prune({.max_bytes = total(cache) - 1}).removed[0].key == key_of(1));
  set_age(box.file(3, ".cubin"), -1000000);
  CHECK(cache.prune({.max_bytes = 0}).removed.size() == 2);
  const fs::path litter = box.file(1, ".cubin").parent_path() / ".tmp-old";
  spill(litter, "x");
  set_age(litter, -1000000);
  cache.prune({.max_bytes = 0});
  CHECK_FALSE(fs::exists(litter));
}

TEST_CASE("temporaries count in the size") {
  CacheBox box;
  DiskCache cache(box.options);
  fill(box, cache, 3);
  const std::uint64_t all = total(cache);
  const fs::path litter = box.file(1, ".cubin").parent_path() / ".tmp-new";
  spill(litter, std::string(100'000, 'x'));
  CHECK(total(cache) == all + 100'000);
  CHECK(cache.prune({.max_bytes = all, .dry_run = true}).removed.size() == 3);
  set_age(litter, 4000);  // left behind: it goes, and the entries stay
  CHECK(cache.prune({.max_bytes = all, .dry_run = true}).removed.empty());
  CHECK(cache.prune({.max_bytes = all}).removed.empty());
  CHECK(total(cache) == all);
}

TEST_CASE("pin protects an entry that is there and says no for one that is not") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(1)));
  CHECK(cache.pin(key_of(1)));
  CHECK(cache.pin(key_of(1)));
  CHECK_FALSE(cache.pin(key_of(2)));
  CHECK(cache.prune({.max_bytes = 0}).removed.size() == 0);
  CHECK(cache.get(key_of(1)));
}
