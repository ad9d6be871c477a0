// The memory cache: one build per key, in parallel for different keys, repeated after a failure.
#include "cache/memory_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using kiln::cache::MemoryCache;

namespace {

using Cache = MemoryCache<int, std::string>;

std::shared_ptr<std::string> text(const char* value) {
  return std::make_shared<std::string>(value);
}

void on_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("16 threads on one key build it once and share it") {
  Cache cache;
  std::atomic<int> builds = 0;
  std::latch together(16);
  std::vector<std::shared_ptr<std::string>> got(16);
  on_threads(16, [&](int i) {
    together.arrive_and_wait();
    got[static_cast<std::size_t>(i)] = cache.get(1, [&] {
      ++builds;
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      return text("one");
    });
  });
  CHECK(builds == 1);
  CHECK(cache.size() == 1);
  for (const auto& value : got) CHECK(value == got[0]);
}

TEST_CASE("different keys build in parallel") {
  Cache cache;
  std::latch all_building(4);  // would never open if builds took turns
  on_threads(4, [&](int i) {
    cache.get(i, [&] {
      all_building.arrive_and_wait();
      return text("value");
    });
  });
  CHECK(cache.size() == 4);
}

TEST_CASE("a build that throws leaves no trace, and a waiter builds instead") {
  Cache cache;
  std::atomic<int> builds = 0, failures = 0, values = 0;
  on_threads(8, [&](int) {
    try {
      const auto value = cache.get(1, [&] {
        if (++builds <= 3) throw std::runtime_error("no");
        return text("fourth");
      });
      values += *value == "fourth" ? 1 : 0;
    } catch (const std::runtime_error&) {
      ++failures;
    }
  });
  CHECK(builds == 4);
  CHECK(failures == 3);
  CHECK(values == 5);
}

TEST_CASE("a value is visible before its waiters go on, and a build may get other keys") {
  Cache cache;
  std::vector<int> order;
  const auto outer = cache.get(1, [&] {
    CHECK(cache.find(1) == nullptr);
    cache.get(2, [&] {
      order.push_back(2);
      return text("inner");
    });
    CHECK(*cache.find(2) == "inner");
    order.push_back(1);
    return text("outer");
  });
  CHECK(order == std::vector<int>{2, 1});
  CHECK(cache.find(1) == outer);
}

TEST_CASE("a hit builds nothing") {
  Cache cache;
  const auto first = cache.get(1, [] { return text("a"); });
  CHECK(cache.get(1, [] { return text("b"); }) == first);
  CHECK(cache.size() == 1);
  CHECK(cache.find(1) == first);
  CHECK(*first == "a");
}

TEST_CASE("finding and building at the same time is safe") {
  Cache cache;
  std::atomic<int> wrong = 0;
  on_threads(8, [&](int i) {
    for (int n = 0; n < 300; ++n) {
      const int key = (n + i) % 5;
      const auto value =
          cache.get(key, [&] { return std::make_shared<std::string>(std::to_string(key)); });
      if (*value != std::to_string(key)) ++wrong;
      if (const auto found = cache.find(key); found && *found != std::to_string(key)) ++wrong;
    }
  });
  CHECK(wrong == 0);
  CHECK(cache.size() <= 5);
}

TEST_CASE("a child of fork builds what other threads of its parent were building") {
  Cache cache;
  cache.get(1, [] { return text("known"); });
  std::latch building(1), forked(1);
  std::thread builder([&] {
    cache.get(2, [&] {
      building.count_down();
      forked.wait();
      return text("parent's");
    });
  });
  building.wait();
  std::thread waiter([&] { cache.get(2, [] { return text("waiter's"); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the waiter to wait
  cache.before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    cache.after_fork_in_child();
    ::alarm(20);  // ends a child that hangs
    const bool sound = *cache.get(2, [] { return text("child's"); }) == "child's" &&
                       *cache.get(1, [] { return text("new"); }) == "known";
    ::_exit(sound ? 0 : 1);
  }
  cache.after_fork_in_parent();
  forked.count_down();
  builder.join();
  waiter.join();
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(*cache.find(2) == "parent's");
}
