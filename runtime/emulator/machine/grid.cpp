// A grid over the host's cores.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

// Ops of a cluster before another of its worker may run: long, since few kernels wait for other
// blocks, and switching costs the caches.
constexpr std::uint64_t kQuantum = 1 << 20;

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollInterval{100};
constexpr std::chrono::microseconds kPause{50};

std::int64_t cluster_count(const LaunchShape& shape) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < 3; ++i) count *= shape.grid[i] / shape.cluster[i];
  return count;
}

// Clusters that the modelled device holds at once: a kernel whose blocks wait for each other works
// as it would there.
std::int64_t resident_limit(const Launch& launch) {
  const auto& [x, y, z] = launch.shape.block;
  const int warps = static_cast<int>((x * y * z + kLanes - 1) / kLanes);
  const std::uint64_t shared =
      kSharedBase + launch.program->shared_bytes + launch.shape.dynamic_shared_bytes;
  const DeviceLimits& limits = *launch.limits;
  const auto by_shared = static_cast<int>(limits.shared_per_sm / shared);
  const int per_sm =
      std::max(1, std::min({limits.warps_per_sm / warps, limits.blocks_per_sm, by_shared}));
  const auto& cluster = launch.shape.cluster;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(per_sm) * limits.sm_count /
                                       (cluster[0] * cluster[1] * cluster[2]));
}

class GridRun {
 public:
  explicit GridRun(const Launch& launch)
      : launch_(launch), total_(cluster_count(launch.shape)), limit_(resident_limit(launch)) {
    constexpr std::int64_t kShuffleLimit = 1 << 22;  // 32 MiB of indices
    if (launch.options.seed != 0 && total_ <= kShuffleLimit) {
      order_.resize(static_cast<std::size_t>(total_));
      std::iota(order_.begin(), order_.end(), std::int64_t{0});
      std::mt19937_64 random(launch.options.seed);
      std::shuffle(order_.begin(), order_.end(), random);
    }
  }

  void run() {
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const int wanted = launch_.options.workers > 0 ? launch_.options.workers : cores;
    const auto workers = static_cast<int>(std::min<std::int64_t>(wanted, total_));
    std::vector<std::jthread> threads;
    for (int i = 1; i < workers && start_worker(threads); ++i) {
    }
    work(true);
    threads.clear();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // False where the process may have no more threads: those that there are do the work.
  bool start_worker(std::vector<std::jthread>& threads) {
    ++others_;
    try {
      threads.emplace_back([this] {
        work(false);
        --others_;
      });
    } catch (const std::system_error&) {
      --others_;
      return false;
    }
    return true;
  }

  std::unique_ptr<Cluster> start() {
    if (resident_.fetch_add(1) >= limit_) {
      resident_.fetch_sub(1);
      return nullptr;
    }
    const std::int64_t turn = next_.fetch_add(1);
    if (turn >= total_) {
      resident_.fetch_sub(1);
      return nullptr;
    }
    return std::make_unique<Cluster>(
        launch_, order_.empty() ? turn : order_[static_cast<std::size_t>(turn)]);
  }

  // The launching thread stays until the others are done: it alone may poll.
  void work(bool launches) {
    std::deque<std::unique_ptr<Cluster>> mine;
    Clock::time_point polled = Clock::now();
    try {
      while (!stop_) {
        if (launches && launch_.poll != nullptr && Clock::now() - polled > kPollInterval) {
          launch_.poll();
          polled = Clock::now();
        }
        // A cluster that has not ended in its turn may wait for one that has not begun.
        if (auto fresh = start()) {
          mine.push_front(std::move(fresh));
        } else if (mine.empty()) {
          if (next_ >= total_ && (!launches || others_ == 0)) return;
          // All places are taken by other workers' clusters, or they finish the last ones.
          std::this_thread::sleep_for(kPause);
          continue;
        }
        if (mine.front()->run(kQuantum)) {
          mine.pop_front();
          resident_.fetch_sub(1);
        } else {
          mine.push_back(std::move(mine.front()));
          mine.pop_front();
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  const Launch& launch_;
  const std::int64_t total_, limit_;
  std::vector<std::int64_t> order_;
  std::atomic<std::int64_t> next_{0}, resident_{0};
  std::atomic<int> others_{0};  // workers beside the launching thread
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

void run_grid(const Launch& launch) { GridRun(launch).run(); }

}  // namespace kiln::runtime::emulator
