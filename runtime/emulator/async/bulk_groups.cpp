// Issue and completion of bulk copies: mbarriers for loads, bulk groups for stores.
#include <algorithm>

#include "runtime/emulator/async/bulk.h"
#include "runtime/emulator/async/mbarrier.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

BulkGroups& groups_of(Warp& warp) { return *warp.async().bulk; }

Flow run_commit(Warp& warp, const Op&, Mask mask) {
  BulkGroups& groups = groups_of(warp);
  for_each_lane(mask, [&](int lane) { ++groups.committed[static_cast<std::size_t>(lane)]; });
  return Flow::next;
}

void advance(Warp& warp, BulkTransfer& transfer, bool reads_only) {
  if (!transfer.work.has_read) transfer.work.read();
  transfer.work.has_read = true;
  if (!transfer.read_waited && transfer.operation != nullptr) {
    warp.block().cluster().shadow()->acquire(warp, *transfer.operation);
  }
  transfer.read_waited = true;
  if (reads_only || transfer.landed) return;
  transfer.work.write();
  transfer.landed = true;
}

// op.flags: .read, the sources only.
Flow run_wait(Warp& warp, const Op& op, Mask mask) {
  BulkGroups& groups = groups_of(warp);
  const bool reads_only = op.flags != 0;
  Mask done = 0;
  for (BulkTransfer& transfer : groups.transfers) {
    if (!(mask >> transfer.lane & 1)) continue;
    const std::uint64_t committed = groups.committed[static_cast<std::size_t>(transfer.lane)];
    const auto left = static_cast<std::uint64_t>(op.immediate);
    if (std::uint64_t{transfer.group} + left >= committed) continue;
    advance(warp, transfer, reads_only);
    done |= Mask{1} << transfer.lane;
  }
  if (done != 0 && !reads_only) {
    std::erase_if(groups.transfers, [&](const BulkTransfer& transfer) {
      return transfer.landed && transfer.read_waited;
    });
  }
  return Flow::next;
}

}  // namespace

std::vector<std::uint32_t> bulk_targets(const Warp& warp, std::uint32_t destination, Ref multicast,
                                        int lane) {
  if (multicast == kNoRef) return {destination >> kRankShift};
  const std::uint32_t mask = warp.u32(multicast)[static_cast<std::size_t>(lane)] & 0xffffu;
  const std::size_t count = warp.block().cluster().blocks().size();
  if (mask == 0 || mask >> count != 0) {
    raise(Fault::out_of_bounds,
          "a multicast to the blocks " + hex(mask) + " of a cluster of " + std::to_string(count),
          lane);
  }
  std::vector<std::uint32_t> targets;
  for_each_lane(mask, [&](int rank) { targets.push_back(static_cast<std::uint32_t>(rank)); });
  return targets;
}

void issue_bulk_load(Warp& warp, BulkLoad load, int lane) {
  Cluster& cluster = warp.block().cluster();
  std::shared_ptr<const Shadow::Operation> operation;
  if (Shadow* shadow = cluster.shadow()) {
    operation = std::make_shared<const Shadow::Operation>(shadow->begin(warp, lane, true));
    if (load.shared_source) {
      shadow->read(*operation, rank_of(*load.shared_source), offset_of(*load.shared_source),
                   load.bytes);
    }
  }
  for (const std::uint32_t rank : load.targets) {
    const std::uint32_t barrier = in_block(rank, load.barrier);
    mbarrier_check_async(warp, barrier, lane);
    if (Shadow* shadow = cluster.shadow()) {
      shadow->write(*operation, static_cast<int>(rank), offset_of(load.destination), load.extent);
    }
  }
  BulkWork work;
  work.issuer = &warp;
  work.lane = lane;
  work.ptx_line = ptx_line(warp);
  work.read = std::move(load.read);
  work.write = [&cluster, operation, targets = std::move(load.targets), to = load.destination,
                barrier = load.barrier, bytes = load.bytes, write = std::move(load.write)] {
    for (const std::uint32_t rank : targets) {
      check_block_runs(cluster, in_block(rank, to), "a bulk copy");
      write(in_block(rank, to));
      if (operation != nullptr) mbarrier_publish(cluster, in_block(rank, barrier), *operation);
      mbarrier_complete_tx(cluster, in_block(rank, barrier), bytes);
    }
  };
  cluster.async().issue(std::move(work));
}

void issue_bulk_store(Warp& warp, std::function<void()> read, std::function<void()> write,
                      std::uint32_t source, std::span<const SharedPart> parts, int lane) {
  Cluster& cluster = warp.block().cluster();
  BulkGroups& groups = groups_of(warp);
  BulkTransfer transfer;
  transfer.lane = lane;
  transfer.group = groups.committed[static_cast<std::size_t>(lane)];
  if (Shadow* shadow = cluster.shadow()) {
    transfer.operation = std::make_shared<const Shadow::Operation>(shadow->begin(warp, lane, true));
    for (const SharedPart& part : parts) {
      shadow->read(*transfer.operation, rank_of(source), offset_of(source) + part.offset,
                   part.bytes);
    }
  }
  transfer.work.issuer = &warp;
  transfer.work.lane = lane;
  transfer.work.ptx_line = ptx_line(warp);
  transfer.work.read = std::move(read);
  transfer.work.write = std::move(write);
  if (!cluster.late()) {
    transfer.work.read();
    transfer.work.has_read = true;
    transfer.work.write();
    transfer.landed = true;
  }
  groups.transfers.push_back(std::move(transfer));
}

bool decode_bulk_group(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  if (!modifiers.take("async") || !modifiers.take("bulk")) return false;
  if (modifiers.take("commit_group")) {
    decoder.expect_operands(instruction, 0, 0);
    op.run = run_commit;
  } else if (modifiers.take("wait_group")) {
    op.flags = modifiers.take("read") ? 1 : 0;
    decoder.expect_operands(instruction, 1, 1);
    op.immediate = decoder.literal(instruction.operands[0]);
    if (op.immediate < 0) decoder.fail("a negative number of groups");
    op.run = run_wait;
  } else {
    return false;
  }
  modifiers.finish();
  return true;
}

}  // namespace kiln::runtime::emulator
