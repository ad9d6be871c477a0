// A concurrent map whose values are built once per key: the first caller builds, callers of the
// same key wait for it, other keys build in parallel. A hit takes a shared lock and copies a
// shared_ptr. A build that throws leaves no trace: waiting callers try again themselves. A build
// may get other keys of the same cache, never its own.
//
// A process that forks calls the functions of fork around it: its child has none of the threads
// that build, and would wait for them for ever.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace kiln::cache {

template <class K, class V, class Hash = std::hash<K>>
class MemoryCache {
 public:
  std::shared_ptr<V> find(const K& key) const {
    std::shared_lock lock(mutex_);
    auto it = values_.find(key);
    return it == values_.end() ? nullptr : it->second;
  }

  // `build` returns a std::shared_ptr<V>, never null, and runs without any lock held.
  template <class Build>
  std::shared_ptr<V> get(const K& key, Build&& build) {
    for (;;) {
      if (auto hit = find(key)) return hit;
      {
        std::unique_lock lock(building_mutex_);
        if (building_.contains(key)) {
          built_.wait(lock, [&] { return !building_.contains(key); });
          continue;
        }
        if (auto hit = find(key)) return hit;
        building_.insert(key);
      }
      Claim claim{*this, key};
      std::shared_ptr<V> value = std::forward<Build>(build)();
      std::unique_lock lock(mutex_);
      return values_.emplace(key, std::move(value)).first->second;
    }
  }

  std::size_t size() const {
    std::shared_lock lock(mutex_);
    return values_.size();
  }

  void before_fork() {
    building_mutex_.lock();
    mutex_.lock();
  }
  void after_fork_in_parent() {
    mutex_.unlock();
    building_mutex_.unlock();
  }
  // Made anew, because a lock knows its holder by the thread, which is another one in the child,
  // and what is waited at still counts waiters that are not there.
  void after_fork_in_child() {
    new (&mutex_) std::shared_mutex;
    new (&building_mutex_) std::mutex;
    new (&built_) std::condition_variable;
    building_.clear();
  }

 private:
  struct Claim {  // released after the value is visible, or when the build threw
    MemoryCache& cache;
    const K& key;
    ~Claim() {
      std::unique_lock lock(cache.building_mutex_);
      cache.building_.erase(key);
      lock.unlock();
      cache.built_.notify_all();
    }
  };

  mutable std::shared_mutex mutex_;
  std::unordered_map<K, std::shared_ptr<V>, Hash> values_;
  std::mutex building_mutex_;
  std::condition_variable built_;
  std::unordered_set<K, Hash> building_;
};

}  // namespace kiln::cache
