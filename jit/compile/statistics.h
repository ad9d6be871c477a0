// Counters behind kiln::stats(): one relaxed atomic each, so that a hot call pays a nanosecond.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace kiln {

struct Statistics {
  static constexpr std::size_t kMaxLayers = 16;
  std::atomic<std::uint64_t> memory_hits{0}, misses{0}, compiles{0};
  std::array<std::atomic<std::uint64_t>, kMaxLayers> disk_hits{};  // by layer; the last counts on
  std::atomic<std::uint64_t> compile_nanoseconds{0}, load_nanoseconds{0};
};
Statistics& statistics();

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace kiln
