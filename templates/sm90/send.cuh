// Writes to the shared memory of another CTA of the cluster (sm_90).
#pragma once
#include "/kiln/sm90/mbarrier.cuh"

namespace kiln {

// Returns the address among the shared memory of all CTAs of the cluster.
__device__ __forceinline__ u32 shared_address_in(u32 cta, u32 address) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(cta));
  return there;
}

// Store to the same shared address in a CTA of the cluster, which may be the calling CTA.
__device__ __forceinline__ void store_shared_of(u32 cta, u32 address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(shared_address_in(cta, address)), "f"(value)
               : "memory");
}
__device__ __forceinline__ void store_shared_of(u32 cta, u32 address, const float4& quad) {
  asm volatile(
      "st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address_in(cta, address)),
      "f"(quad.x), "f"(quad.y), "f"(quad.z), "f"(quad.w)
      : "memory");
}

// Writes 16 bytes, which the barrier then counts as those of a copy. Both addresses are those of
// shared_address_in(), of the same CTA, whose barrier was initialised before.
__device__ __forceinline__ void send_16(u32 there, u32 barrier, float x, float y, float z,
                                        float w) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(there),
      "r"(barrier), "f"(x), "f"(y), "f"(z), "f"(w)
      : "memory");
}

// The two halves of sync_cluster(), which all threads of the cluster call in turns. A warp must not
// end between them.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace kiln
