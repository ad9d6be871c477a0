// PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor".
#include <cstring>

#include "runtime/emulator/async/bulk.h"
#include "runtime/emulator/async/tensor_box.h"
#include "runtime/emulator/memory/memory.h"
#include "runtime/emulator/memory/overlap.h"

namespace kiln::runtime::emulator {
namespace {

constexpr unsigned kSharedAlign = 128;

struct TensorExtra : BulkExtra {
  AsyncAddress map;
  std::array<Ref, 5> coordinates{};
  int rank = 0;
  std::optional<BulkOperation> operation;
};

const TensorExtra& extra_of(const Warp& warp, const Op& op) {
  return static_cast<const TensorExtra&>(*warp.block().cluster().program().extras[op.extra]);
}

TensorBox box_of(Warp& warp, const TensorExtra& extra, const TensorMapSpec& map, bool write,
                 int lane) {
  std::array<std::int32_t, 5> at{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(extra.rank); ++i) {
    at[i] = static_cast<std::int32_t>(warp.u32(extra.coordinates[i])[lane]);
  }
  return locate_box(warp, map, at, extra.rank, write, lane);
}

// A prefetch of the same box reads nothing.
void tell_overlap(const Warp& warp, const TensorBox& box, bool write, int lane) {
  const Overlap* overlap = warp.block().cluster().launch().overlap;
  if (overlap == nullptr) return;
  for (const BoxRow& row : box.rows) {
    overlap->access(warp, reinterpret_cast<std::uint64_t>(row.global), row.bytes, write, lane);
  }
}

void load_lane(Warp& warp, const TensorExtra& extra, int lane) {
  Cluster& cluster = warp.block().cluster();
  const TensorMapSpec map = read_tensor_map(warp, extra.map.at(warp, lane), lane);
  const auto box =
      std::make_shared<const TensorBox>(box_of(warp, extra, map, /*write=*/false, lane));
  tell_overlap(warp, *box, /*write=*/false, lane);
  BulkLoad load;
  load.bytes = box->bytes;
  load.extent = box->extent;
  load.destination = extra.destination.shared(warp, lane);
  load.barrier = extra.barrier.shared(warp, lane);
  if (extra.multicast == kNoRef && rank_of(load.barrier) != rank_of(load.destination)) {
    raise(Fault::barrier_misuse,
          "a tensor copy to block " + std::to_string(rank_of(load.destination)) +
              " of the cluster with an mbarrier of block " + std::to_string(rank_of(load.barrier)),
          lane);
  }
  load.targets = bulk_targets(warp, load.destination, extra.multicast, lane);
  for (const std::uint32_t rank : load.targets) {
    shared_at(cluster, in_block(rank, load.destination), load.extent, kSharedAlign, lane);
  }
  auto buffer = std::make_shared<std::vector<std::byte>>();
  load.read = [box, buffer] { gather(*box, *buffer); };
  load.write = [box, buffer, &cluster](std::uint32_t to) {
    Block& block = cluster.blocks()[static_cast<std::size_t>(rank_of(to))];
    swizzle_in(*box, block.shared().data(), offset_of(to), buffer->data());
  };
  issue_bulk_load(warp, std::move(load), lane);
}

// The operations that reductions have on the elements of a map.
Type reduction_type(TensorMapElement element, BulkOperation operation) {
  const bool bits = operation >= BulkOperation::bit_and;
  switch (element) {
    case TensorMapElement::u32:
      return bits ? Type::b32 : Type::u32;
    case TensorMapElement::i32:
      return bits ? Type::b32 : Type::s32;
    case TensorMapElement::u64:
      return bits ? Type::b64 : Type::u64;
    case TensorMapElement::f16:
      return Type::f16;
    case TensorMapElement::bf16:
      return Type::bf16;
    case TensorMapElement::f32:
    case TensorMapElement::tf32:
      return Type::f32;
    case TensorMapElement::f64:
      return Type::f64;
    default:
      return Type::none;
  }
}

void store_lane(Warp& warp, const TensorExtra& extra, int lane) {
  Cluster& cluster = warp.block().cluster();
  const TensorMapSpec map = read_tensor_map(warp, extra.map.at(warp, lane), lane);
  const auto box =
      std::make_shared<const TensorBox>(box_of(warp, extra, map, /*write=*/true, lane));
  tell_overlap(warp, *box, /*write=*/true, lane);
  BulkReduce reduce = nullptr;
  if (extra.operation) {
    reduce = bulk_reduce(*extra.operation, reduction_type(map.element, *extra.operation));
    if (reduce == nullptr) {
      raise(Fault::tensor_map, "a reduction that the map's type of element does not have", lane);
    }
  }
  const std::uint32_t source = extra.source.shared(warp, lane);
  shared_at(cluster, source, box->extent, kSharedAlign, lane);
  auto buffer = std::make_shared<std::vector<std::byte>>();
  const std::byte* base = warp.block().shared().data();
  issue_bulk_store(
      warp,
      [box, buffer, base, at = offset_of(source)] {
        buffer->resize(box->bytes);
        swizzle_out(*box, base, at, buffer->data());
      },
      [box, buffer, reduce] {
        for (const BoxRow& row : box->rows) {
          if (reduce != nullptr) {
            reduce(row.global, buffer->data() + row.at, row.bytes, /*atomic=*/true);
          } else {
            std::memcpy(row.global, buffer->data() + row.at, row.bytes);
          }
        }
      },
      source, parts_inside(*box, offset_of(source)), lane);
}

Flow run_load(Warp& warp, const Op& op, Mask mask) {
  for_each_lane(mask, [&](int lane) { load_lane(warp, extra_of(warp, op), lane); });
  return Flow::next;
}

Flow run_store(Warp& warp, const Op& op, Mask mask) {
  for_each_lane(mask, [&](int lane) { store_lane(warp, extra_of(warp, op), lane); });
  return Flow::next;
}

Flow run_prefetch(Warp& warp, const Op& op, Mask mask) {
  const TensorExtra& extra = extra_of(warp, op);
  for_each_lane(mask, [&](int lane) {
    box_of(warp, extra, read_tensor_map(warp, extra.map.at(warp, lane), lane), false, lane);
  });
  return Flow::next;
}

// [map, {c0, c1, ...}]
void decode_place(Decoder& decoder, const Operand& operand, TensorExtra& extra) {
  if (!operand.is(Operand::Kind::address) || operand.items.size() < 2) {
    decoder.fail("expected a tensor: [map, {coordinates}]");
  }
  extra.map = decode_async_address(decoder, operand, "");
  std::vector<const Operand*> coordinates;
  for (std::size_t i = 1; i < operand.items.size(); ++i) {
    const Operand& item = operand.items[i];
    if (item.is(Operand::Kind::vector)) {
      for (const Operand& each : item.items) coordinates.push_back(&each);
    } else {
      coordinates.push_back(&item);
    }
  }
  if (coordinates.size() != static_cast<std::size_t>(extra.rank)) {
    decoder.fail(std::to_string(coordinates.size()) + " coordinates for " +
                 std::to_string(extra.rank) + " dimensions");
  }
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    extra.coordinates[i] = decoder.source(*coordinates[i], Type::s32);
  }
}

void decode_load(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                 std::string_view to, Op& op, TensorExtra& extra) {
  if (!modifiers.take("global") || !modifiers.take("mbarrier::complete_tx::bytes")) {
    decoder.unknown();
  }
  modifiers.take("tile");
  const bool multicast = modifiers.take("multicast::cluster");
  const bool policy = modifiers.take("L2::cache_hint");
  const std::size_t count = 3 + (multicast ? 1 : 0) + (policy ? 1 : 0);
  decoder.expect_operands(instruction, count, count);
  const auto& operands = instruction.operands;
  extra.destination = decode_async_address(decoder, operands[0], to);
  decode_place(decoder, operands[1], extra);
  extra.barrier = decode_async_address(decoder, operands[2], to);
  if (multicast) extra.multicast = decoder.source(operands[3], Type::b16);
  if (policy) decoder.source(operands.back(), Type::b64);
  op.run = run_load;
}

void decode_store(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                  bool reduces, Op& op, TensorExtra& extra) {
  if (!modifiers.take("shared::cta") || !modifiers.take("bulk_group")) decoder.unknown();
  modifiers.take("tile");
  const bool policy = modifiers.take("L2::cache_hint");
  if (reduces) {
    extra.operation = take_bulk_operation(modifiers);
    if (!extra.operation) decoder.unknown();
  }
  const std::size_t count = policy ? 3 : 2;
  decoder.expect_operands(instruction, count, count);
  decode_place(decoder, instruction.operands[0], extra);
  extra.source = decode_async_address(decoder, instruction.operands[1], "shared::cta");
  if (policy) decoder.source(instruction.operands.back(), Type::b64);
  op.run = run_store;
}

void decode_prefetch(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers, Op& op,
                     TensorExtra& extra) {
  if (!modifiers.take("L2") || !modifiers.take("global")) decoder.unknown();
  modifiers.take("tile");
  const bool policy = modifiers.take("L2::cache_hint");
  const std::size_t count = policy ? 2 : 1;
  decoder.expect_operands(instruction, count, count);
  decode_place(decoder, instruction.operands[0], extra);
  if (policy) decoder.source(instruction.operands.back(), Type::b64);
  op.run = run_prefetch;
}

}  // namespace

void decode_bulk_tensor(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  auto extra = std::make_unique<TensorExtra>();
  const bool reduces = modifiers.take("reduce");
  if (!modifiers.take("async") || !modifiers.take("bulk") || !modifiers.take("tensor")) {
    decoder.unknown();
  }
  const bool prefetches = !reduces && modifiers.take("prefetch");
  const int rank = modifiers.take_one_of({"1d", "2d", "3d", "4d", "5d"});
  if (rank < 0) decoder.unknown();
  extra->rank = rank + 1;
  if (prefetches) {
    decode_prefetch(decoder, instruction, modifiers, op, *extra);
  } else if (!reduces && modifiers.take("shared::cluster")) {
    decode_load(decoder, instruction, modifiers, "shared::cluster", op, *extra);
  } else if (instruction.has("bulk_group") && modifiers.take("global")) {
    decode_store(decoder, instruction, modifiers, reduces, op, *extra);
  } else if (!reduces && modifiers.take("shared::cta")) {
    decode_load(decoder, instruction, modifiers, "shared::cta", op, *extra);
  } else {
    decoder.unknown();
  }
  modifiers.finish();  // im2col and its offsets are not modelled
  op.extra = decoder.keep(std::move(extra));
}

}  // namespace kiln::runtime::emulator
