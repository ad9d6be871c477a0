// Special registers: who a lane is, in what grid, and the clocks (PTX ISA, "Special Registers").
#include <array>
#include <chrono>
#include <iterator>

#include "runtime/emulator/arithmetic/moves.h"

namespace kiln::runtime::emulator {
namespace {

using Reader = std::uint64_t (*)(const Warp& warp, int lane);

const Launch& launch_of(const Warp& warp) { return warp.block().cluster().launch(); }

// The index of a lane's thread along one axis of its block.
template <int Axis>
std::uint64_t tid(const Warp& warp, int lane) {
  const std::array<unsigned, 3>& block = launch_of(warp).shape.block;
  auto rest = static_cast<unsigned>(warp.thread(lane));
  for (int axis = 0; axis < Axis; ++axis) rest /= block[static_cast<std::size_t>(axis)];
  return Axis == 2 ? rest : rest % block[Axis];
}

template <int Axis>
std::uint64_t ntid(const Warp& warp, int) {
  return launch_of(warp).shape.block[Axis];
}

template <int Axis>
std::uint64_t ctaid(const Warp& warp, int) {
  return static_cast<std::uint64_t>(warp.block().id()[Axis]);
}

template <int Axis>
std::uint64_t nctaid(const Warp& warp, int) {
  return launch_of(warp).shape.grid[Axis];
}

template <int Axis>
std::uint64_t cluster_nctaid(const Warp& warp, int) {
  return launch_of(warp).shape.cluster[Axis];
}

template <int Axis>
std::uint64_t clusterid(const Warp& warp, int lane) {
  return ctaid<Axis>(warp, lane) / cluster_nctaid<Axis>(warp, lane);
}

template <int Axis>
std::uint64_t nclusterid(const Warp& warp, int lane) {
  return nctaid<Axis>(warp, lane) / cluster_nctaid<Axis>(warp, lane);
}

template <int Axis>
std::uint64_t cluster_ctaid(const Warp& warp, int lane) {
  return ctaid<Axis>(warp, lane) % cluster_nctaid<Axis>(warp, lane);
}

std::uint64_t cluster_nctarank(const Warp& warp, int) {
  const std::array<unsigned, 3>& cluster = launch_of(warp).shape.cluster;
  return std::uint64_t{cluster[0]} * cluster[1] * cluster[2];
}

std::uint64_t is_explicit_cluster(const Warp& warp, int lane) {
  return cluster_nctarank(warp, lane) > 1 ||
                 warp.block().cluster().program().function->required_cluster[0] != 0
             ? 1
             : 0;
}

// Time is not modelled: an op counts as one cycle of its own warp.
std::uint64_t clock(const Warp& warp, int) { return warp.steps(); }

std::uint64_t global_timer(const Warp&, int) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

// Shared memory is granted in pieces of 128 bytes.
std::uint64_t total_shared(const Warp& warp, int) {
  const std::uint64_t bytes = warp.block().cluster().program().shared_bytes +
                              std::uint64_t{launch_of(warp).shape.dynamic_shared_bytes};
  return (bytes + 127) / 128 * 128;
}

std::uint64_t zero(const Warp&, int) { return 0; }

std::uint64_t below(int lane) { return (std::uint64_t{1} << lane) - 1; }

constexpr std::string_view kEnvironment = "%envreg";

// %envreg0 to %envreg31, all one row of the table.
bool is_environment(std::string_view name) {
  if (!name.starts_with(kEnvironment)) return false;
  const std::string_view digits = name.substr(kEnvironment.size());
  if (digits.size() == 1) return digits[0] >= '0' && digits[0] <= '9';
  return digits.size() == 2 && digits[0] >= '1' && digits <= "31" && digits[1] >= '0' &&
         digits[1] <= '9';
}

struct Row {
  std::string_view name;
  Reader read;
};

constexpr Row kRegisters[] = {
    {"%tid.x", tid<0>},
    {"%tid.y", tid<1>},
    {"%tid.z", tid<2>},
    {"%ntid.x", ntid<0>},
    {"%ntid.y", ntid<1>},
    {"%ntid.z", ntid<2>},
    {"%ctaid.x", ctaid<0>},
    {"%ctaid.y", ctaid<1>},
    {"%ctaid.z", ctaid<2>},
    {"%nctaid.x", nctaid<0>},
    {"%nctaid.y", nctaid<1>},
    {"%nctaid.z", nctaid<2>},
    {"%clusterid.x", clusterid<0>},
    {"%clusterid.y", clusterid<1>},
    {"%clusterid.z", clusterid<2>},
    {"%nclusterid.x", nclusterid<0>},
    {"%nclusterid.y", nclusterid<1>},
    {"%nclusterid.z", nclusterid<2>},
    {"%cluster_ctaid.x", cluster_ctaid<0>},
    {"%cluster_ctaid.y", cluster_ctaid<1>},
    {"%cluster_ctaid.z", cluster_ctaid<2>},
    {"%cluster_nctaid.x", cluster_nctaid<0>},
    {"%cluster_nctaid.y", cluster_nctaid<1>},
    {"%cluster_nctaid.z", cluster_nctaid<2>},
    {"%cluster_ctarank",
     [](const Warp& warp, int) { return static_cast<std::uint64_t>(warp.block().rank()); }},
    {"%cluster_nctarank", cluster_nctarank},
    {"%is_explicit_cluster", is_explicit_cluster},
    {"%laneid", [](const Warp&, int lane) { return static_cast<std::uint64_t>(lane); }},
    {"%warpid", [](const Warp& warp, int) { return static_cast<std::uint64_t>(warp.index()); }},
    {"%nwarpid",
     [](const Warp& warp, int) {
       return static_cast<std::uint64_t>(launch_of(warp).limits->warps_per_sm);
     }},
    {"%smid",
     [](const Warp& warp, int) {
       return static_cast<std::uint64_t>(warp.block().linear_id() %
                                         launch_of(warp).limits->sm_count);
     }},
    {"%nsmid", [](const Warp& warp,
                  int) { return static_cast<std::uint64_t>(launch_of(warp).limits->sm_count); }},
    {"%gridid", [](const Warp&, int) { return std::uint64_t{1}; }},
    {"%lanemask_eq", [](const Warp&, int lane) { return std::uint64_t{1} << lane; }},
    {"%lanemask_lt", [](const Warp&, int lane) { return below(lane); }},
    {"%lanemask_le", [](const Warp&, int lane) { return below(lane + 1); }},
    {"%lanemask_gt", [](const Warp&, int lane) { return kAllLanes & ~below(lane + 1); }},
    {"%lanemask_ge", [](const Warp&, int lane) { return kAllLanes & ~below(lane); }},
    {"%clock", clock},
    {"%clock_hi", [](const Warp& warp, int lane) { return clock(warp, lane) >> 32; }},
    {"%clock64", clock},
    {"%globaltimer", global_timer},
    {"%globaltimer_lo", global_timer},
    {"%globaltimer_hi", [](const Warp& warp, int lane) { return global_timer(warp, lane) >> 32; }},
    {"%dynamic_smem_size",
     [](const Warp& warp, int) -> std::uint64_t {
       return launch_of(warp).shape.dynamic_shared_bytes;
     }},
    {"%total_smem_size", total_shared},
    {"%aggr_smem_size",
     [](const Warp& warp, int lane) { return total_shared(warp, lane) + kSharedBase; }},
    {"%reserved_smem_offset_begin", zero},
    {"%reserved_smem_offset_end", [](const Warp&, int) { return std::uint64_t{kSharedBase}; }},
    {"%reserved_smem_offset_cap", [](const Warp&, int) { return std::uint64_t{kSharedBase}; }},
    {"%reserved_smem_offset_0", zero},
    {"%reserved_smem_offset_1", [](const Warp&, int) { return std::uint64_t{kSharedBase / 2}; }},
    {"%current_graph_exec", zero},
    {"WARP_SZ", [](const Warp&, int) { return std::uint64_t{kLanes}; }},
    // The driver's 32 registers, of which a launch by itself sets none (cooperative groups read
    // the address of a grid's barrier there, and find that there is no such grid).
    {kEnvironment, zero},
};

}  // namespace

SpecialRegister special_register(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kRegisters); ++i) {
    const bool found =
        kRegisters[i].name == kEnvironment ? is_environment(name) : kRegisters[i].name == name;
    if (!found) continue;
    return {true, name == "%is_explicit_cluster", static_cast<std::uint8_t>(i)};
  }
  return {};
}

std::uint64_t read_special(const Warp& warp, std::uint8_t index, int lane) {
  return kRegisters[index].read(warp, lane);
}

}  // namespace kiln::runtime::emulator
