// Turns of two math groups. Barrier 8 + g is group g's turn: the other group gives it.
#pragma once
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

__device__ __forceinline__ void wait_for_turn(int group) { sync_threads<256>(8 + group); }
__device__ __forceinline__ void give_turn(int group) { arrive_threads<256>(8 + group); }

}  // namespace kiln
