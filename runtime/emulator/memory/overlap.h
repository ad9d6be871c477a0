// Launches that may overlap: a programmatic launch may begin before those before it in its stream
// have ended, and only griddepcontrol.wait orders what it accesses behind them. The launches still
// run one after the other here; this records what each accesses, and reports accesses that come
// before the wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/emulator/memory/footprint.h"

namespace kiln::runtime::emulator {

class Warp;

// One launch has one. Its functions may be called by several threads at once.
class Overlap {
 public:
  using Running = std::vector<std::shared_ptr<const Footprint>>;
  // `own` is where the launch's accesses are recorded; `before` are launches that may still run.
  Overlap(std::shared_ptr<Footprint> own, Running before)
      : own_(std::move(own)), before_(std::move(before)) {}

  // An access of global memory. Raises Fault::unfinished_launch where a lane is not behind a wait,
  // and an earlier launch has written what it reads, or read or written what it writes.
  void access(const Warp& warp, std::uint64_t address, std::uint64_t bytes, bool write,
              int lane) const;
  void access_lanes(const Warp& warp, const std::uint64_t* addresses, unsigned bytes, bool write,
                    Mask lanes) const;

  // griddepcontrol.wait and .launch_dependents.
  void wait(const Warp& warp, Mask lanes);
  void signal(const Warp& warp);

  // Launches that may still run when a programmatic launch behind this one begins.
  Running running() const;

 private:
  void check(std::uint64_t address, std::uint64_t bytes, bool write, int lane) const;

  std::shared_ptr<Footprint> own_;
  Running before_;
  // Some block has waited before it let dependent launches begin: when they do, what lies before
  // this launch has ended.
  std::atomic<bool> waited_first_{false};
};

}  // namespace kiln::runtime::emulator
