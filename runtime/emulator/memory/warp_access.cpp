#include "runtime/emulator/memory/warp_access.h"

#include <algorithm>
#include <bit>

#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/memory/overlap.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

using Addresses = std::array<std::uint64_t, kLanes>;

constexpr std::uint64_t kWindowMask = 0xf000'0000'0000'0000u;

const std::initializer_list<std::string_view> kSpaces = {
    "global", "shared", "shared::cta",  "shared::cluster", "local",
    "const",  "param",  "param::entry", "param::func"};
constexpr Space kSpaceOf[] = {Space::global, Space::shared, Space::shared,
                              Space::shared, Space::local,  Space::constant,
                              Space::param,  Space::param,  Space::param};

// Lanes that take no part get the address of one that does, so that the loops need no mask.
Addresses gather(const Warp& warp, const MemoryOperand& operand, Mask mask) {
  Addresses all;
  const auto offset = static_cast<std::uint64_t>(operand.offset);
  if (operand.narrow) {
    // A 32-bit address wraps as a 32-bit register does.
    const std::uint32_t* row = warp.u32(operand.address);
    for (int l = 0; l < kLanes; ++l) all[l] = static_cast<std::uint32_t>(row[l] + offset);
  } else {
    const std::uint64_t* row = warp.u64(operand.address);
    for (int l = 0; l < kLanes; ++l) all[l] = row[l] + offset;
  }
  if (mask != kAllLanes) {
    const std::uint64_t active = all[std::countr_zero(mask)];
    for (int l = 0; l < kLanes; ++l) all[l] = mask >> l & 1 ? all[l] : active;
  }
  return all;
}

struct Extent {
  std::uint64_t low = ~std::uint64_t{0}, high = 0, bits = 0;
};

Extent extent_of(const Addresses& addresses) {
  Extent extent;
  for (std::uint64_t address : addresses) {
    extent.low = std::min(extent.low, address);
    extent.high = std::max(extent.high, address);
    extent.bits |= address;
  }
  return extent;
}

// The host's byte of address 0 of the range that holds all lanes, or null.
std::byte* shared_base(Warp& warp, const Extent& extent, unsigned bytes, bool peers) {
  std::vector<Block>& blocks = warp.block().cluster().blocks();
  const std::uint64_t rank = extent.low >> kRankShift;
  if (rank != extent.high >> kRankShift || rank >= blocks.size()) return nullptr;
  Block& block = blocks[rank];
  if (&block != &warp.block() && (!peers || block.done())) return nullptr;
  const std::uint64_t begin = rank << kRankShift;
  if (extent.low < begin + kSharedBase || extent.high - begin + bytes > block.shared_end()) {
    return nullptr;
  }
  return block.shared().data();
}

void tell_shadow(Warp& warp, const Addresses& addresses, const MemoryOperand& operand,
                 AccessKind kind, Mask lanes) {
  Shadow* shadow = warp.block().cluster().shadow();
  if (shadow == nullptr) return;
  const auto rank = static_cast<int>(addresses[std::countr_zero(lanes)] >> kRankShift);
  const bool strong = operand.how.strong;
  switch (kind) {
    case AccessKind::read:
      shadow->read_lanes(warp, rank, addresses.data(), operand.bytes, lanes, strong);
      break;
    case AccessKind::write:
      shadow->write_lanes(warp, rank, addresses.data(), operand.bytes, lanes, strong);
      break;
    case AccessKind::atomic:
      shadow->atomic_lanes(warp, rank, addresses.data(), operand.bytes, lanes);
      break;
  }
}

// Lanes that lie in different ranges, or a fault: one by one.
LanePointers access_each(Warp& warp, const MemoryOperand& operand, AccessKind kind, Mask mask,
                         Addresses addresses) {
  LanePointers found;
  for_each_lane(mask, [&](int lane) {
    Space space = operand.how.space;
    found.at[lane] = access_unwatched(warp, space, addresses[lane], operand.bytes,
                                      kind != AccessKind::read, lane, operand.how.peers);
    if (kind == AccessKind::atomic && space != Space::global && space != Space::shared) {
      raise(Fault::out_of_bounds, "an atomic operation outside global and shared memory", lane);
    }
    if (space == Space::shared) tell_shadow(warp, addresses, operand, kind, Mask{1} << lane);
  });
  return found;
}

}  // namespace

LanePointers access_lanes(Warp& warp, const MemoryOperand& operand, AccessKind kind, Mask mask) {
  Addresses addresses = gather(warp, operand, mask);
  Extent extent = extent_of(addresses);
  if (!std::has_single_bit(operand.bytes) || (extent.bits & (operand.bytes - 1)) != 0) {
    return access_each(warp, operand, kind, mask, addresses);
  }
  LanePointers found;
  found.space = operand.how.space;
  bool peers = operand.how.peers;
  if (found.space == Space::none && (extent.low & kWindowMask) == (extent.high & kWindowMask)) {
    std::uint64_t low = extent.low;
    found.space = resolve_generic(low);
    const std::uint64_t window = extent.low - low;
    extent.low -= window;
    extent.high -= window;
    for (std::uint64_t& address : addresses) address -= window;
    peers = true;
  }
  std::byte* base = nullptr;  // of address 0, or of rank 0's
  std::uint64_t origin = 0;
  const Launch& launch = warp.block().cluster().launch();
  const bool writes = kind != AccessKind::read;
  if (found.space == Space::global || found.space == Space::constant) {
    const std::uint64_t span = extent.high - extent.low + operand.bytes;
    base = launch.memory->try_find(extent.low, span, writes);
    origin = extent.low;
    if (base != nullptr && launch.overlap != nullptr && found.space == Space::global) {
      launch.overlap->access_lanes(warp, addresses.data(), operand.bytes, writes, mask);
    }
  } else if (found.space == Space::shared) {
    base = shared_base(warp, extent, operand.bytes, peers);
    origin = extent.low & ~std::uint64_t{kSharedOffsetMask};
    if (base != nullptr) tell_shadow(warp, addresses, operand, kind, mask);
  } else if (found.space == Space::param && !writes && extent.high < launch.arguments.size() &&
             operand.bytes <= launch.arguments.size() - extent.high) {
    base = const_cast<std::byte*>(launch.arguments.data());  // only read
  } else if (found.space == Space::local && kind != AccessKind::atomic) {
    const std::uint64_t size = warp.block().cluster().program().local_bytes;
    if (extent.high < size && operand.bytes <= size - extent.high) {
      for (int l = 0; l < kLanes; ++l) found.at[l] = warp.local(l) + addresses[l];
      return found;
    }
  }
  if (base == nullptr) {
    // Undo the window: each lane's own space is found again.
    return access_each(warp, operand, kind, mask, gather(warp, operand, mask));
  }
  for (int l = 0; l < kLanes; ++l) found.at[l] = base + (addresses[l] - origin);
  return found;
}

MemoryModifiers take_memory_modifiers(Modifiers& modifiers) {
  MemoryModifiers how;
  const int space = modifiers.take_one_of(kSpaces);
  if (space >= 0) how.space = kSpaceOf[space];
  how.peers = space == 3;
  // Each order is executed as the strongest: no program can tell, but by its races.
  how.strong = modifiers.take_one_of({"volatile", "relaxed", "acquire", "release", "acq_rel"}) >= 0;
  modifiers.take("weak");
  modifiers.take("mmio");
  // Scopes: the host's atomics hold for all.
  modifiers.take_one_of({"cta", "cluster", "gpu", "sys"});
  // Hints to caches, which are not modelled.
  how.cache_policy = modifiers.take("L2::cache_hint");
  for (const char* hint :
       {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged",
        "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::evict_normal",
        "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B"}) {
    modifiers.take(hint);
  }
  return how;
}

MemoryOperand decode_memory_operand(Decoder& decoder, const Operand& operand,
                                    const MemoryModifiers& how, unsigned bytes) {
  Op op;
  MemoryOperand made;
  made.narrow = decoder.address(operand, op) == 4;
  made.address = op.a;
  made.offset = op.immediate;
  made.how = how;
  made.bytes = bytes;
  return made;
}

}  // namespace kiln::runtime::emulator
