// GPU generations: which machine code a device runs, and the limits that configs must respect.
#pragma once

#include <compare>
#include <span>
#include <string_view>

namespace kiln {

struct Capability {
  int major = 0, minor = 0;
  auto operator<=>(const Capability&) const = default;
};

// One row per kind of machine code that Kiln ships configs for. A device runs the code of the
// newest row of its own major version that is not newer than itself (9.0 -> sm_90, 12.1 -> sm_120).
struct Arch {
  int number;               // 90
  Capability since;         // the first device that runs it
  int shared_bytes;         // opt-in limit of one block
  int shared_bytes_per_sm;  // of one multiprocessor, for occupancy
  std::string_view name;    // "sm_90": the portable templates ask for no suffix
};
std::span<const Arch> arch_table();
// Says whether launches may be programmatic ones, see templates/base/launches.cuh. `arch`: an index
// into the table.
bool may_overlap(int arch);

// Index into arch_table(). Throws std::invalid_argument for devices before 8.0 or unknown ones.
int arch_index(Capability capability);
// "sm_90", "sm_90a" or "90": the device meant. Throws std::invalid_argument that lists the devices.
Capability parse_arch(std::string_view text);

}  // namespace kiln
