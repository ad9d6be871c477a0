// The math warpgroups' turns at the tensor cores.
#pragma once
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

// Barrier 1 + g is math group g's turn.
template <class Config>
struct Turns {
  static constexpr bool kUsed = Config::kTurns && Config::kGroups > 1;
  int group;

  // Called once by every group before its first turn.
  __device__ __forceinline__ void begin() const {
    if (kUsed && group == Config::kGroups - 1) arrive_threads<256>(1);
  }
  __device__ __forceinline__ void take() const {
    if constexpr (kUsed) sync_threads<256>(1 + group);
  }
  __device__ __forceinline__ void give() const {
    if constexpr (kUsed) arrive_threads<256>(1 + (group + 1 == Config::kGroups ? 0 : group + 1));
  }
};

}  // namespace kiln
