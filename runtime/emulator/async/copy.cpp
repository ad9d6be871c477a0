// PTX ISA, "Data Movement and Conversion Instructions: cp.async".
#include "runtime/emulator/async/copy.h"

#include <algorithm>
#include <cstring>

#include "runtime/emulator/async/address.h"
#include "runtime/emulator/async/mbarrier.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {

void CopyBatch::land(Mask lanes) {
  const Mask todo = lanes & unlanded;
  for_each_lane(todo, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    if (source_bytes[l] > 0) std::memcpy(destination[l], source[l], source_bytes[l]);
    std::memset(destination[l] + source_bytes[l], 0, std::size_t{bytes} - source_bytes[l]);
  });
  unlanded &= ~todo;
}

void CopyGroups::land_before(std::uint64_t sequence, Mask mask) {
  for (CopyBatch& batch : batches) {
    if (batch.sequence < sequence) batch.land(mask);
  }
}

namespace {

struct CopyExtra : OpExtra {
  AsyncAddress destination, source;
  std::uint8_t bytes = 0;
  Ref source_bytes = kNoRef;
  Ref ignore = kNoRef;  // a predicate
  bool ignore_negated = false;
};

Shadow* shadow_of(Warp& warp) { return warp.block().cluster().shadow(); }

std::uint32_t source_bytes(const Warp& warp, const CopyExtra& extra, int lane) {
  if (extra.ignore != kNoRef) {
    const bool holds = warp.predicate(extra.ignore) >> lane & 1;
    return holds != extra.ignore_negated ? 0 : extra.bytes;
  }
  if (extra.source_bytes == kNoRef) return extra.bytes;
  const std::uint32_t count = warp.u32(extra.source_bytes)[static_cast<std::size_t>(lane)];
  if (count > extra.bytes) {
    raise(Fault::out_of_bounds,
          "cp.async of " + std::to_string(extra.bytes) + " bytes with a source of " +
              std::to_string(count),
          lane);
  }
  return count;
}

Flow run_copy(Warp& warp, const Op& op, Mask mask) {
  Cluster& cluster = warp.block().cluster();
  const auto& extra = static_cast<const CopyExtra&>(*cluster.program().extras[op.extra]);
  CopyGroups& groups = *warp.async().copies;
  CopyBatch& batch = groups.batches.emplace_back();
  batch.bytes = extra.bytes;
  batch.line = ptx_line(warp);
  batch.sequence = groups.next_sequence++;
  Shadow* shadow = cluster.shadow();
  Shadow::Operation operation;
  if (shadow != nullptr) {
    operation = shadow->begin(warp, std::countr_zero(mask), /*async_proxy=*/false);
    batch.operation = std::make_shared<const Shadow::Operation>(operation);
  }
  for_each_lane(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    const std::uint32_t to = extra.destination.shared(warp, lane);
    batch.destination[l] = shared_at(cluster, to, extra.bytes, extra.bytes, lane);
    const std::uint32_t count = source_bytes(warp, extra, lane);
    batch.source_bytes[l] = static_cast<std::uint8_t>(count);
    batch.source[l] = nullptr;
    if (count > 0) {
      const std::uint64_t from = extra.source.global(warp, lane);
      batch.source[l] = global_at(warp, from, count, extra.bytes, false, lane);
    }
    batch.group[l] = groups.committed[l];
    if (shadow != nullptr) {
      operation.lane = lane;
      shadow->write(operation, rank_of(to), offset_of(to), extra.bytes);
    }
  });
  batch.pending = batch.unlanded = mask;
  if (!cluster.late()) batch.land(mask);
  return Flow::next;
}

Flow run_commit(Warp& warp, const Op&, Mask mask) {
  CopyGroups& groups = *warp.async().copies;
  for_each_lane(mask, [&](int lane) { ++groups.committed[static_cast<std::size_t>(lane)]; });
  return Flow::next;
}

// Of each lane's copies, those in groups below its bound are waited for.
void wait_below(Warp& warp, Mask mask, const std::array<std::uint32_t, kLanes>& bound) {
  CopyGroups& groups = *warp.async().copies;
  for (CopyBatch& batch : groups.batches) {
    Mask covered = 0;
    for_each_lane(batch.pending & mask, [&](int lane) {
      const auto l = static_cast<std::size_t>(lane);
      if (batch.group[l] < bound[l]) covered |= Mask{1} << lane;
    });
    if (covered == 0) continue;
    batch.land(covered);
    batch.pending &= ~covered;
    if (batch.operation != nullptr) shadow_of(warp)->acquire(warp, *batch.operation);
  }
  std::erase_if(groups.batches, [](const CopyBatch& batch) { return batch.pending == 0; });
}

Flow run_wait_group(Warp& warp, const Op& op, Mask mask) {
  const CopyGroups& groups = *warp.async().copies;
  const auto left = static_cast<std::uint64_t>(op.immediate);
  std::array<std::uint32_t, kLanes> bound{};
  for_each_lane(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    if (groups.committed[l] > left) {
      bound[l] = groups.committed[l] - static_cast<std::uint32_t>(left);
    }
  });
  wait_below(warp, mask, bound);
  return Flow::next;
}

Flow run_wait_all(Warp& warp, const Op&, Mask mask) {
  std::array<std::uint32_t, kLanes> bound;
  bound.fill(~0u);  // what isn't committed yet too
  wait_below(warp, mask, bound);
  return Flow::next;
}

// The barrier tracks the copies that each lane has begun so far.
Flow run_arrive(Warp& warp, const Op& op, Mask mask) {
  Cluster& cluster = warp.block().cluster();
  const auto& extra = static_cast<const CopyExtra&>(*cluster.program().extras[op.extra]);
  const bool noinc = op.flags != 0;
  std::vector<std::uint32_t> barriers;
  for_each_lane(mask, [&](int lane) {
    barriers.push_back(extra.destination.shared(warp, lane));
    mbarrier_check(warp, barriers.back(), lane);
    if (!noinc) mbarrier_add_pending(cluster, barriers.back());
  });
  CopyGroups& groups = *warp.async().copies;
  std::vector<std::shared_ptr<const Shadow::Operation>> operations;
  for (const CopyBatch& batch : groups.batches) {
    if ((batch.pending & mask) != 0 && batch.operation != nullptr) {
      operations.push_back(batch.operation);
    }
  }
  BulkWork work;
  work.issuer = &warp;
  work.lane = std::countr_zero(mask);
  work.ptx_line = ptx_line(warp);
  work.write = [&cluster, &groups, mask, noinc, sequence = groups.next_sequence,
                barriers = std::move(barriers), operations = std::move(operations)] {
    groups.land_before(sequence, mask);
    for (std::uint32_t barrier : barriers) {
      for (const auto& operation : operations) mbarrier_publish(cluster, barrier, *operation);
      mbarrier_arrive_async(cluster, barrier, noinc);
    }
    // Whoever waits for the barrier has waited for the copies.
    for (CopyBatch& batch : groups.batches) {
      if (batch.sequence < sequence) batch.pending &= ~mask;
    }
    std::erase_if(groups.batches, [](const CopyBatch& batch) { return batch.pending == 0; });
  };
  cluster.async().issue(std::move(work));
  return Flow::next;
}

void decode_copy(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers, bool all,
                 Op& op) {
  auto extra = std::make_unique<CopyExtra>();
  const bool own = modifiers.take("shared") || modifiers.take("shared::cta");
  if (!own || !modifiers.take("global")) decoder.unknown();
  const bool policy = modifiers.take("L2::cache_hint");
  modifiers.take_one_of({"L2::64B", "L2::128B", "L2::256B"});
  modifiers.finish();
  decoder.expect_operands(instruction, 3, 5);
  const auto& operands = instruction.operands;
  extra->destination = decode_async_address(decoder, operands[0], "shared");
  extra->source = decode_async_address(decoder, operands[1], "global");
  const std::int64_t bytes = decoder.literal(operands[2]);
  if (bytes != 16 && (!all || (bytes != 4 && bytes != 8))) {
    decoder.fail("cp.async of " + std::to_string(bytes) + " bytes");
  }
  extra->bytes = static_cast<std::uint8_t>(bytes);
  const std::size_t rest = operands.size() - (policy ? 1 : 0);
  if (rest > 4 || rest < 3) decoder.fail("cp.async with too many or too few operands");
  if (rest == 4) {
    if (decoder.register_type(operands[3]) == Type::pred) {
      extra->ignore = decoder.predicate(operands[3]);
      extra->ignore_negated = operands[3].negated;
    } else {
      extra->source_bytes = decoder.source(operands[3], Type::u32);
    }
  }
  if (policy) decoder.source(operands.back(), Type::b64);
  op.extra = decoder.keep(std::move(extra));
  op.run = run_copy;
}

}  // namespace

void decode_cp_async(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  if (!modifiers.take("async")) decoder.unknown();
  const int level = modifiers.take_one_of({"ca", "cg"});
  if (level >= 0) return decode_copy(decoder, instruction, modifiers, level == 0, op);
  if (modifiers.take("commit_group")) {
    decoder.expect_operands(instruction, 0, 0);
    op.run = run_commit;
  } else if (modifiers.take("wait_group")) {
    decoder.expect_operands(instruction, 1, 1);
    op.immediate = decoder.literal(instruction.operands[0]);
    if (op.immediate < 0) decoder.fail("a negative number of groups");
    op.run = run_wait_group;
  } else if (modifiers.take("wait_all")) {
    decoder.expect_operands(instruction, 0, 0);
    op.run = run_wait_all;
  } else if (modifiers.take("mbarrier")) {
    if (!modifiers.take("arrive") || !modifiers.take("b64")) decoder.unknown();
    op.flags = modifiers.take("noinc") ? 1 : 0;
    const bool shared = modifiers.take("shared") || modifiers.take("shared::cta");
    decoder.expect_operands(instruction, 1, 1);
    auto extra = std::make_unique<CopyExtra>();
    extra->destination =
        decode_async_address(decoder, instruction.operands[0], shared ? "shared" : "");
    op.extra = decoder.keep(std::move(extra));
    op.run = run_arrive;
  } else {
    decoder.unknown();
  }
  modifiers.finish();
}

}  // namespace kiln::runtime::emulator
