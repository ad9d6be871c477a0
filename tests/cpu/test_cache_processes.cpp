// Several processes on one folder: races for a key, readers beside writers, locks.
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/cpu/cache_fixture.h"
#include "tests/support/catch.h"

using namespace kiln::cache;
using namespace kiln::cache::testing;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The engine's order: look, lock, look again, build, publish. Returns whether it had to build.
bool get_or_build(DiskCache& cache, int number, const Entry& built) {
  if (cache.get(key_of(number))) return false;
  const auto lock = cache.lock(key_of(number), 30);
  if (cache.get(key_of(number))) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  cache.put(key_of(number), built);
  return true;
}

}  // namespace

TEST_CASE("8 processes on one empty cache build a key once") {
  CacheBox box;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(start_child([&] {
      DiskCache cache(box.options);
      if (get_or_build(cache, 1, entry_of(1))) {
        spill(box.folder.path() / ("built-" + std::to_string(::getpid())), "");
      }
      const auto hit = cache.get(key_of(1));
      return hit && same(hit->entry, entry_of(1)) && box.warnings.empty();
    }));
  }
  for (const pid_t child : children) CHECK(succeeded(child));
  CHECK(names_under(box.folder.path(), "built-").size() == 1);
  CHECK(names_under(box.store(), ".tmp-").empty());
  CHECK(fs::is_empty(box.store() / "locks"));
  CHECK(DiskCache(box.options).verify()[0].fault.empty());
}

TEST_CASE("8 processes publishing different bytes under one key leave one sound entry") {
  CacheBox box;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(start_child([&box, i] {
      DiskCache cache(box.options);
      bool stored = true;
      for (int round = 0; round < 5; ++round) stored &= cache.put(key_of(1), entry_of(i));
      return stored;
    }));
  }
  for (const pid_t child : children) CHECK(succeeded(child));
  const auto hit = DiskCache(box.options).get(key_of(1));
  REQUIRE(hit);
  CHECK(same(hit->entry, entry_of(hit->entry.description["registers"])));
  CHECK(names_under(box.store(), ".tmp-").empty());
}

TEST_CASE("a reader beside a writer sees whole entries only") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(1), entry_of(0)));
  const pid_t writer = start_child([&] {
    DiskCache other(box.options);
    for (int i = 0; i < 60; ++i) other.put(key_of(1), entry_of(i));
    return true;
  });
  int hits = 0, wrong = 0;
  while (::waitpid(writer, nullptr, WNOHANG) == 0) {
    const auto hit = cache.get(key_of(1));
    hits += hit ? 1 : 0;
    if (hit && !same(hit->entry, entry_of(hit->entry.description["registers"]))) ++wrong;
  }
  CHECK(hits > 0);
  CHECK(wrong == 0);
  CHECK(cache.get(key_of(1)));
}

TEST_CASE("two processes pruning and writing do not trip each other") {
  CacheBox box;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(start_child([&box, i] {
      DiskCache cache(box.options);
      for (int n = 0; n < 20; ++n) {
        if (!cache.put(key_of(n), entry_of(n))) return false;
        if (i % 2 == 0) cache.prune({.max_bytes = 20000});
        const auto hit = cache.get(key_of(n));
        if (hit && !same(hit->entry, entry_of(n))) return false;
      }
      return true;
    }));
  }
  for (const pid_t child : children) CHECK(succeeded(child));
  for (const auto& result : DiskCache(box.options).verify()) CHECK(result.fault.empty());
}

TEST_CASE("a limit holds for what two processes write together") {
  CacheBox box;
  DiskCache cache(box.options);
  REQUIRE(cache.put(key_of(0), entry_of(0)));
  const std::uint64_t entry = cache.layers()[0].bytes + 100;  // their sizes differ by a few bytes
  box.options.max_bytes = 10 * entry;
  DiskCache limited(box.options);
  REQUIRE(limited.put(key_of(1), entry_of(1)));
  // Alone, each stays below the limit.
  CHECK(succeeded(start_child([&] {
    DiskCache other(box.options);
    for (int i = 10; i < 17; ++i) {
      if (!other.put(key_of(i), entry_of(i))) return false;
    }
    return true;
  })));
  for (int i = 20; i < 27; ++i) REQUIRE(limited.put(key_of(i), entry_of(i)));
  const std::uint64_t eighth = box.options.max_bytes / 8 + entry;
  CHECK(limited.layers()[0].bytes <= box.options.max_bytes + eighth);
}

TEST_CASE("threads share one cache, and a cause is warned about once for all of them") {
  CacheBox box;
  box.options.max_bytes = 20000;
  box.options.read_only = {box.folder.path() / "nowhere"};
  DiskCache cache(box.options);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 10; ++n) {
        const auto lock = cache.lock(key_of(n), 0.01);
        if (!cache.put(key_of((n + i) % 10), entry_of((n + i) % 10))) ++wrong;
        const auto hit = cache.get(key_of(n));
        if (hit && !same(hit->entry, entry_of(n))) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  for (const auto& text : box.warnings) UNSCOPED_INFO(text);
  CHECK(box.warnings.size() == 1);
}

TEST_CASE("a lock is waited on for no longer than asked, and passes on") {
  CacheBox box;
  DiskCache cache(box.options);
  auto held = cache.lock(key_of(1), 1);
  auto start = Clock::now();
  CHECK(cache.lock(key_of(1), 0.2));
  CHECK(seconds_since(start) >= 0.2);
  CHECK(seconds_since(start) < 5);
  start = Clock::now();
  CHECK(cache.lock(key_of(2), 10));  // another key's
  CHECK(seconds_since(start) < 5);
  const pid_t waiter = start_child([&] {
    const auto began = Clock::now();
    const auto lock = DiskCache(box.options).lock(key_of(1), 60);
    return seconds_since(began) < 30;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  held.reset();
  CHECK(succeeded(waiter));
}

TEST_CASE("the lock of a killed process, or one that a forked child inherited, is free") {
  CacheBox box;
  DiskCache cache(box.options);
  const pid_t killed = start_child([&] {
    const auto lock = DiskCache(box.options).lock(key_of(1), 1);
    ::_exit(0);  // without releasing it
    return true;
  });
  CHECK(succeeded(killed));
  auto lock = cache.lock(key_of(1), 1);
  const pid_t child = start_child([] {
    std::this_thread::sleep_for(std::chrono::seconds(20));
    return true;
  });
  lock.reset();
  const auto start = Clock::now();
  lock = cache.lock(key_of(1), 15);
  CHECK(seconds_since(start) < 10);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}
