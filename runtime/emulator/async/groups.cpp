// Asynchronous work in flight: a cluster's queue, a warp's groups, and what must not be left.
#include <string>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/async/bulk.h"
#include "runtime/emulator/async/copy.h"
#include "runtime/emulator/async/mbarrier.h"
#include "runtime/emulator/machine/cluster_ops.h"
#include "runtime/emulator/matrix/groups.h"

namespace kiln::runtime::emulator {
namespace {

// Rounds of time-outs without any change before they count as a deadlock: more than the barriers
// that a kernel is likely to poll one after the other.
constexpr int kIdleRounds = 64;

void finish(BulkWork& work) {
  if (!work.has_read && work.read) work.read();
  work.has_read = true;
  work.write();
}

}  // namespace

AsyncQueue::AsyncQueue(Cluster& cluster)
    : cluster_(cluster), mbarriers_(std::make_unique<MbarrierTable>()) {}
AsyncQueue::~AsyncQueue() = default;

void AsyncQueue::issue(BulkWork work) {
  if (cluster_.late()) {
    works_.push_back(std::move(work));
  } else {
    finish(work);
  }
}

bool AsyncQueue::deliver() {
  if (works_.empty()) return false;
  BulkWork work = std::move(works_.front());
  works_.pop_front();
  idle_rounds_ = 0;
  finish(work);
  // The next is chosen now, so that front() tells which it is.
  if (cluster_.launch().options.seed != 0 && works_.size() > 1) {
    std::swap(works_.front(), works_[cluster_.random()() % works_.size()]);
  }
  return true;
}

bool AsyncQueue::time_out() {
  if (mbarriers_->changes != seen_changes_) idle_rounds_ = 0;
  seen_changes_ = mbarriers_->changes;
  if (mbarriers_->objects.empty() || ++idle_rounds_ > kIdleRounds) return false;
  ++round_;
  return true;
}

bool AsyncQueue::times_out(AsyncState& state, Mask lanes) const {
  if (state.timeout_round != round_) {
    state.timeout_round = round_;
    state.timed_out = 0;
  }
  if (round_ == 0 || (state.timed_out & lanes) != 0) return false;
  state.timed_out |= lanes;
  return true;
}

AsyncState::AsyncState()
    : copies(std::make_unique<CopyGroups>()), bulk(std::make_unique<BulkGroups>()) {}
AsyncState::~AsyncState() = default;

void AsyncState::check_finished(const Warp& warp) const {
  check_matrix_finished(warp);
  check_register_trades(warp);
  for (const CopyBatch& batch : copies->batches) {
    if (batch.pending == 0) continue;
    raise(Fault::in_flight,
          "the kernel has ended with a cp.async that nobody waited for (PTX line " +
              std::to_string(batch.line) + ")",
          std::countr_zero(batch.pending));
  }
  for (BulkTransfer& transfer : bulk->transfers) {
    if (!transfer.read_waited) {
      raise(Fault::in_flight,
            "the block has ended before its bulk store (PTX line " +
                std::to_string(transfer.work.ptx_line) +
                ") is known to have read its shared memory: cp.async.bulk.wait_group.read is "
                "missing",
            transfer.lane);
    }
    if (!transfer.landed) finish(transfer.work);
    transfer.landed = true;
  }
}

}  // namespace kiln::runtime::emulator
