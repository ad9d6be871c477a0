// Looking for Ctrl-C while a module is loaded or a grid runs.
#pragma once

#include <chrono>

namespace kiln::runtime::emulator {

// What set_emulator_poll was given, or null.
void (*host_poll())();

// Calls the host's poll about ten times a second; what it throws passes through. Work that takes
// less time never calls it. A tick is cheap enough for every token and instruction.
class Ticker {
 public:
  void tick() {
    if ((++ticks_ & 255) == 0) look();
  }

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  unsigned ticks_ = 0;
  Clock::time_point polled_ = Clock::now();
};

}  // namespace kiln::runtime::emulator
