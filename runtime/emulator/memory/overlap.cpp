// PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch".
#include "runtime/emulator/memory/overlap.h"

#include <string>
#include <utility>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

// Launches that never wait could all still run; no GPU holds many at once, and each costs memory.
constexpr std::size_t kMostRunning = 4;

}  // namespace

void Overlap::check(std::uint64_t address, std::uint64_t bytes, bool write, int lane) const {
  for (const auto& launch : before_) {
    const bool written = launch->has_written(address, bytes);
    if (!written && (!write || !launch->has_read(address, bytes))) continue;
    raise(Fault::unfinished_launch,
          std::string(write ? "write" : "read") + " of " + std::to_string(bytes) +
              (bytes == 1 ? " byte" : " bytes") + " at global address " + hex(address) +
              ", which the earlier launch of '" + launch->kernel() + "' " +
              (written ? "writes" : "reads") +
              ": it may still be running, because neither this lane nor one that it has waited "
              "for has executed griddepcontrol.wait",
          lane);
  }
}

void Overlap::access(const Warp& warp, std::uint64_t address, std::uint64_t bytes, bool write,
                     int lane) const {
  if (own_ != nullptr) own_->add(address, bytes, write);
  if (before_.empty()) return;
  const Mask behind = warp.block().cluster().shadow()->behind_launches(warp);
  if ((behind >> lane & 1) == 0) check(address, bytes, write, lane);
}

void Overlap::access_lanes(const Warp& warp, const std::uint64_t* addresses, unsigned bytes,
                           bool write, Mask lanes) const {
  if (own_ != nullptr) own_->add_lanes(addresses, bytes, write, lanes);
  if (before_.empty()) return;
  const Mask early = lanes & ~warp.block().cluster().shadow()->behind_launches(warp);
  for_each_lane(early, [&](int lane) { check(addresses[lane], bytes, write, lane); });
}

void Overlap::wait(const Warp& warp, Mask lanes) {
  if (before_.empty()) return;
  warp.block().cluster().shadow()->wait_for_launches(warp, lanes);
  if (!warp.block().lets_dependents_begin) waited_first_ = true;
}

void Overlap::signal(const Warp& warp) { warp.block().lets_dependents_begin = true; }

Overlap::Running Overlap::running() const {
  Running running;
  if (!waited_first_) running = before_;
  if (own_ != nullptr) running.push_back(own_);
  if (running.size() > kMostRunning) running.erase(running.begin());
  return running;
}

}  // namespace kiln::runtime::emulator
