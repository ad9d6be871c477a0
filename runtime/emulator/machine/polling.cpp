#include "runtime/emulator/machine/polling.h"

#include "runtime/emulator/machine/emulated_device.h"

namespace kiln::runtime {
namespace emulator {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

void (*g_poll)() = nullptr;

}  // namespace

void (*host_poll())() { return g_poll; }

void Ticker::look() {
  const Clock::time_point now = Clock::now();
  if (g_poll == nullptr || now - polled_ < kInterval) return;
  g_poll();
  polled_ = Clock::now();
}

}  // namespace emulator

void set_emulator_poll(void (*poll)()) { emulator::g_poll = poll; }

}  // namespace kiln::runtime
