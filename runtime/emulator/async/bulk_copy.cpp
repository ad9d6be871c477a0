// PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.prefetch": runs of bytes.
#include <cstring>

#include "runtime/emulator/async/bulk.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

constexpr unsigned kUnit = 16;  // bytes: the grain of addresses and sizes

using Buffer = std::shared_ptr<std::vector<std::byte>>;

std::uint32_t size_of(const Warp& warp, const BulkExtra& extra, int lane) {
  const std::uint32_t bytes = warp.u32(extra.bytes)[static_cast<std::size_t>(lane)];
  if (bytes % kUnit != 0) {
    raise(Fault::misaligned,
          "a bulk copy of " + std::to_string(bytes) + " bytes; the size must be a multiple of 16",
          lane);
  }
  return bytes;
}

const BulkExtra& extra_of(const Warp& warp, const Op& op) {
  return static_cast<const BulkExtra&>(*warp.block().cluster().program().extras[op.extra]);
}

void land(std::byte* to, const std::vector<std::byte>& data, BulkReduce reduce, bool atomic) {
  if (reduce != nullptr) {
    reduce(to, data.data(), data.size(), atomic);
  } else {
    std::memcpy(to, data.data(), data.size());
  }
}

// To shared memory: from global memory, or from the own block's.
void load_lane(Warp& warp, const BulkExtra& extra, int lane) {
  Cluster& cluster = warp.block().cluster();
  BulkLoad load;
  load.bytes = load.extent = size_of(warp, extra, lane);
  load.destination = extra.destination.shared(warp, lane);
  load.barrier = extra.barrier.shared(warp, lane);
  if (extra.multicast == kNoRef && rank_of(load.barrier) != rank_of(load.destination)) {
    raise(Fault::barrier_misuse,
          "a bulk copy to block " + std::to_string(rank_of(load.destination)) +
              " of the cluster with an mbarrier of block " + std::to_string(rank_of(load.barrier)),
          lane);
  }
  load.targets = bulk_targets(warp, load.destination, extra.multicast, lane);
  for (const std::uint32_t rank : load.targets) {
    shared_at(cluster, in_block(rank, load.destination), load.bytes, kUnit, lane);
  }
  const std::byte* from;
  if (extra.source.space == Space::global) {
    const std::uint64_t address = extra.source.global(warp, lane);
    from = load.bytes == 0 ? nullptr
                           : global_at(warp, address, load.bytes, kUnit, /*write=*/false, lane);
  } else {
    load.shared_source = extra.source.shared(warp, lane);
    from = shared_at(cluster, *load.shared_source, load.bytes, kUnit, lane);
  }
  auto buffer = std::make_shared<std::vector<std::byte>>();
  load.read = [buffer, from, bytes = load.bytes] { buffer->assign(from, from + bytes); };
  load.write = [buffer, &cluster, bytes = load.bytes, reduce = extra.reduce](std::uint32_t to) {
    land(shared_at(cluster, to, bytes, kUnit, -1), *buffer, reduce, /*atomic=*/false);
  };
  issue_bulk_load(warp, std::move(load), lane);
}

void store_lane(Warp& warp, const BulkExtra& extra, int lane) {
  const std::uint32_t bytes = size_of(warp, extra, lane);
  const std::uint32_t source = extra.source.shared(warp, lane);
  const std::byte* from = shared_at(warp.block().cluster(), source, bytes, kUnit, lane);
  if (bytes == 0) return;
  std::byte* to =
      global_at(warp, extra.destination.global(warp, lane), bytes, kUnit, /*write=*/true, lane);
  auto buffer = std::make_shared<std::vector<std::byte>>();
  const SharedPart whole{0, bytes};
  issue_bulk_store(
      warp, [buffer, from, bytes] { buffer->assign(from, from + bytes); },
      [buffer, to, reduce = extra.reduce] { land(to, *buffer, reduce, /*atomic=*/true); }, source,
      std::span(&whole, 1), lane);
}

Flow run_load(Warp& warp, const Op& op, Mask mask) {
  for_each_lane(mask, [&](int lane) { load_lane(warp, extra_of(warp, op), lane); });
  return Flow::next;
}

Flow run_store(Warp& warp, const Op& op, Mask mask) {
  for_each_lane(mask, [&](int lane) { store_lane(warp, extra_of(warp, op), lane); });
  return Flow::next;
}

// Nothing is cached here; what the hardware would refuse still is.
Flow run_prefetch(Warp& warp, const Op& op, Mask mask) {
  const BulkExtra& extra = extra_of(warp, op);
  for_each_lane(mask, [&](int lane) {
    const std::uint32_t bytes = size_of(warp, extra, lane);
    const std::uint64_t address = extra.source.global(warp, lane);
    if (bytes == 0) return;
    check_global_alignment(address, bytes, kUnit, /*write=*/false, lane);
    warp.block().cluster().launch().memory->find(address, bytes, /*write=*/false, lane);
  });
  return Flow::next;
}

void take_reduction(Decoder& decoder, Modifiers& modifiers, BulkExtra& extra) {
  const auto operation = take_bulk_operation(modifiers);
  if (!operation) decoder.unknown();
  const Type type = modifiers.take_type();
  // The ISA wants .noftz with sums of 16-bit floats, and nowhere else.
  const bool half = type == Type::f16 || type == Type::bf16;
  if (modifiers.take("noftz") != (half && *operation == BulkOperation::add)) decoder.unknown();
  extra.reduce = bulk_reduce(*operation, type);
  if (extra.reduce == nullptr) decoder.unknown();
}

void decode_load(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                 std::string_view to, Op& op, BulkExtra& extra) {
  const bool global = modifiers.take("global");
  if (!global && !modifiers.take("shared::cta")) decoder.unknown();
  if (!modifiers.take("mbarrier::complete_tx::bytes")) decoder.unknown();
  const bool multicast = global && modifiers.take("multicast::cluster");
  const bool policy = modifiers.take("L2::cache_hint");
  const std::size_t count = 4 + (multicast ? 1 : 0) + (policy ? 1 : 0);
  decoder.expect_operands(instruction, count, count);
  const auto& operands = instruction.operands;
  extra.destination = decode_async_address(decoder, operands[0], to);
  extra.source = decode_async_address(decoder, operands[1], global ? "global" : "shared::cta");
  extra.bytes = decoder.source(operands[2], Type::u32);
  extra.barrier = decode_async_address(decoder, operands[3], to);
  if (multicast) extra.multicast = decoder.source(operands[4], Type::b16);
  if (policy) decoder.source(operands.back(), Type::b64);
  op.run = run_load;
}

void decode_store(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers, Op& op,
                  BulkExtra& extra) {
  if (!modifiers.take("shared::cta") || !modifiers.take("bulk_group")) decoder.unknown();
  const bool policy = modifiers.take("L2::cache_hint");
  const std::size_t count = policy ? 4 : 3;
  decoder.expect_operands(instruction, count, count);
  const auto& operands = instruction.operands;
  extra.destination = decode_async_address(decoder, operands[0], "global");
  extra.source = decode_async_address(decoder, operands[1], "shared::cta");
  extra.bytes = decoder.source(operands[2], Type::u32);
  if (policy) decoder.source(operands.back(), Type::b64);
  op.run = run_store;
}

void decode_prefetch(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers, Op& op,
                     BulkExtra& extra) {
  if (!modifiers.take("L2") || !modifiers.take("global")) decoder.unknown();
  const bool policy = modifiers.take("L2::cache_hint");
  const std::size_t count = policy ? 3 : 2;
  decoder.expect_operands(instruction, count, count);
  extra.source = decode_async_address(decoder, instruction.operands[0], "global");
  extra.bytes = decoder.source(instruction.operands[1], Type::u32);
  if (policy) decoder.source(instruction.operands.back(), Type::b64);
  op.run = run_prefetch;
}

}  // namespace

void decode_bulk(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (decode_bulk_group(decoder, instruction, op)) return;
  Modifiers modifiers(decoder, instruction);
  auto extra = std::make_unique<BulkExtra>();
  const bool reduces = modifiers.take("reduce");
  if (!modifiers.take("async") || !modifiers.take("bulk")) decoder.unknown();
  // The first space is the destination's.
  const std::string_view first = instruction.modifiers.size() > (reduces ? 3u : 2u)
                                     ? instruction.modifiers[reduces ? 3 : 2]
                                     : std::string_view();
  if (!reduces && first == "prefetch" && modifiers.take("prefetch")) {
    decode_prefetch(decoder, instruction, modifiers, op, *extra);
  } else if (first == "global" && modifiers.take(first)) {
    decode_store(decoder, instruction, modifiers, op, *extra);
  } else if ((first == "shared::cluster" || first == "shared::cta") && modifiers.take(first)) {
    decode_load(decoder, instruction, modifiers, first, op, *extra);
  } else {
    decoder.unknown();
  }
  if (reduces) take_reduction(decoder, modifiers, *extra);
  modifiers.finish();
  op.extra = decoder.keep(std::move(extra));
}

}  // namespace kiln::runtime::emulator
