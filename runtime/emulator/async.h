// Asynchronous work in flight. Under the eager schedule it is done at issue; under the late one it
// is kept here until a wait demands it, or, where a waiter polls an mbarrier, until nothing else in
// the cluster can go on.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/emulator/machine.h"

namespace kiln::runtime::emulator {

// A bulk copy, or another operation that completes through an mbarrier or a bulk group. `read`
// takes its sources into a buffer of its own, `write` lands them and completes the barrier.
struct BulkWork {
  std::function<void()> read;
  std::function<void()> write;
  bool has_read = false;
  const Warp* issuer = nullptr;
  int lane = -1;
  std::uint32_t ptx_line = 0;
};

// A cluster's work that completes through mbarriers: delivered when nobody can go on.
class AsyncQueue {
 public:
  explicit AsyncQueue(Cluster& cluster) : cluster_(cluster) {}
  // Late: queued. Eager: done now.
  void issue(BulkWork work);
  // Does one piece: the oldest, or with a seed any. False when there is none.
  bool deliver();
  bool empty() const { return works_.empty(); }
  const BulkWork* front() const { return works_.empty() ? nullptr : &works_.front(); }

 private:
  Cluster& cluster_;
  std::deque<BulkWork> works_;
};

// Groups of one thread's work, as cp.async.commit_group, cp.async.bulk.commit_group and
// wgmma.commit_group form them. Owned by async_groups.cpp and matrix_async.cpp.
struct CopyGroups;
struct BulkGroups;
struct MatrixGroups;

struct AsyncState {
  AsyncState();
  ~AsyncState();
  std::unique_ptr<CopyGroups> copies;    // cp.async of this warp's lanes
  std::unique_ptr<BulkGroups> bulk;      // bulk stores and reductions of this warp's lanes
  std::unique_ptr<MatrixGroups> matrix;  // wgmma of this warp
  // Work left at the end: a fault, except stores whose sources have been read.
  void check_finished(const Warp& warp) const;
};

// mbarrier objects live in shared memory as 64 bits; mbarrier.cpp knows the layout.
// Address: as registers hold it, rank and offset.
void mbarrier_complete_tx(Cluster& cluster, std::uint32_t shared_address, std::uint32_t bytes);
// One arrival by an asynchronous unit (cp.async.mbarrier.arrive). `noinc`: counted in the init.
void mbarrier_arrive_async(Cluster& cluster, std::uint32_t shared_address, bool noinc);
// "phase 1, 3 of 4 arrivals pending, 4096 bytes awaited".
std::string describe_mbarrier(Cluster& cluster, std::uint32_t shared_address);

// The executor calls this first for ops that touch registers of wgmma (Op::matrix). Raises
// Fault::in_flight where those are in flight; true when it has executed the op itself: compilers
// leave moves of accumulators in flight between wgmmas, which become part of the queue.
bool watch_matrix(Warp& warp, const Op& op, Mask mask);

}  // namespace kiln::runtime::emulator
