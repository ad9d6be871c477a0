// Copies boxes between tensors in global memory and shared memory with the copy engine (TMA).
//
// A tensor map describes the tensor, with up to five dimensions, the fastest first, and the box.
// Elements of a box outside the tensor are loaded as zeros and dropped when stored; a load always
// brings the bytes of the whole box. Three limits of an H200 are in no manual:
//   - If a row of the tensor ends within 16 bytes, a store writes all 16, so the rows of a tensor
//     that is stored must be multiples of 16 bytes.
//   - Along rows a swizzled box must begin at a multiple of 16 bytes, or the GPU reports an illegal
//     instruction.
//   - Nor must a swizzled store begin before the tensor's first element, or it reports the same.
#pragma once
#include "/kiln/base/copy.cuh"

namespace kiln {

// The map as the host encoded it. Kernels take it by value, as a __grid_constant__.
struct alignas(64) TensorMap {
  u64 words[16];
};

__device__ __forceinline__ u64 address_of(const TensorMap& map) {
  return reinterpret_cast<u64>(&map);
}
// `map` is a member of the kernel's parameters, which the compiler knows. Of one chosen at run
// time, ptxas 12.4 and 12.5 take the offset among the parameters for the address, and the GPU
// reports a misaligned address.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(address_of(map)) : "memory");
}

// Called by one thread; `barrier` counts the bytes. The box begins at element (x, y, z), (x, y, z,
// w) or (x, y, z, w, v).
__device__ __forceinline__ void load_box(u32 destination, const TensorMap& map, u32 barrier, int x,
                                         int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
      "l"(address_of(map)), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void load_box(u32 destination, const TensorMap& map, u32 barrier, int x,
                                         int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination),
      "l"(address_of(map)), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void load_box(u32 destination, const TensorMap& map, u32 barrier, int x,
                                         int y, int z, int w, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
      "l"(address_of(map)), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}
// Loads the same box into every CTA in `ctas`, a bit for each rank in the cluster, at the same
// offset in its shared memory. The barrier of each CTA counts the bytes.
__device__ __forceinline__ void load_box_multicast(u32 destination, const TensorMap& map,
                                                   u32 barrier, int x, int y, int z, u16 ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
      "l"(address_of(map)), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(ctas)
      : "memory");
}

// Called by one thread, after all writers of the box called fence_async_proxy() and a barrier.
__device__ __forceinline__ void store_box(const TensorMap& map, u32 source, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
          address_of(map)),
      "r"(source), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void store_box(const TensorMap& map, u32 source, int x, int y, int z,
                                          int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          address_of(map)),
      "r"(source), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's committed groups must still read shared memory.
template <int kPending>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Makes this thread's writes to shared memory visible to the copy engine and to wgmma.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace kiln
