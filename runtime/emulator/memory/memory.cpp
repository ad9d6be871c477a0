// The one way from an address in a register to the host's bytes, with every check on it.
#include "runtime/emulator/memory/memory.h"

#include <bit>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/memory/overlap.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint64_t kWindowMask = 0xf000'0000'0000'0000u;

std::string describe(std::uint64_t bytes, bool write, const char* space, std::uint64_t address) {
  return std::string(write ? "write" : "read") + " of " + std::to_string(bytes) +
         (bytes == 1 ? " byte" : " bytes") + " at " + space + " address " + hex(address);
}

void check_alignment(std::uint64_t address, std::uint64_t bytes, std::uint64_t align, bool write,
                     const char* space, int lane) {
  if (std::has_single_bit(align) && (address & (align - 1)) != 0) {
    raise(Fault::misaligned,
          describe(bytes, write, space, address) + ", which must be a multiple of " +
              std::to_string(align),
          lane);
  }
}

// The variable that begins last before an offset, for the author to recognise where it is.
std::string near_variable(const Program& program, std::uint32_t offset) {
  const SharedVariable* best = nullptr;
  for (const SharedVariable& variable : program.shared_variables) {
    if (variable.offset <= offset && (best == nullptr || variable.offset >= best->offset)) {
      best = &variable;
    }
  }
  if (best == nullptr) return {};
  return "; '" + std::string(best->name) + "' begins " + std::to_string(offset - best->offset) +
         " bytes before";
}

[[noreturn]] void report_shared(const Cluster& cluster, Block* block, std::uint64_t address,
                                std::uint64_t bytes, bool write, int lane) {
  std::string text = describe(bytes, write, "shared", address);
  if (block == nullptr) {
    raise(Fault::out_of_bounds, text + ", which is no block's of the cluster", lane);
  }
  const auto offset = static_cast<std::uint32_t>(address & kSharedOffsetMask);
  if (offset < kSharedBase) {
    raise(Fault::out_of_bounds,
          text + ": it begins " + std::to_string(kSharedBase - offset) +
              " bytes before the block's shared memory, in the first KiB, which the system keeps",
          lane);
  }
  text += ": it ends " + std::to_string(offset + bytes - block->shared_end()) +
          " bytes behind the end of the block's shared memory (" +
          std::to_string(block->shared_end() - kSharedBase) + " bytes from " + hex(kSharedBase) +
          ")";
  raise(Fault::out_of_bounds, text + near_variable(cluster.program(), offset), lane);
}

std::byte* find_shared(Cluster& cluster, std::uint64_t address, std::uint64_t bytes, bool write,
                       int lane) {
  const std::uint64_t rank = address >> kRankShift;
  std::vector<Block>& blocks = cluster.blocks();
  Block* block = rank < blocks.size() ? &blocks[rank] : nullptr;
  const std::uint64_t offset = address & kSharedOffsetMask;
  if (block == nullptr || offset < kSharedBase || bytes > block->shared_end() ||
      offset > block->shared_end() - bytes) {
    report_shared(cluster, block, address, bytes, write, lane);
  }
  return block->shared().data() + offset;
}

void check_peer(const Warp& warp, std::uint64_t address, unsigned bytes, bool write, int lane,
                bool peers) {
  const auto own = static_cast<std::uint64_t>(warp.block().rank());
  const std::uint64_t rank = address >> kRankShift;
  if (rank == own) return;
  if (!peers) {
    raise(Fault::out_of_bounds,
          describe(bytes, write, "shared", address) + ": it belongs to block " +
              std::to_string(rank) + " of the cluster, the access is by block " +
              std::to_string(own) + " and not .shared::cluster",
          lane);
  }
  // CUDA guide, "Distributed shared memory": the peer must not have ended.
  const std::vector<Block>& blocks = warp.block().cluster().blocks();
  if (rank < blocks.size() && blocks[rank].done()) {
    raise(Fault::out_of_bounds,
          describe(bytes, write, "shared", address) + ": block " + std::to_string(rank) +
              " of the cluster has already ended",
          lane);
  }
}

std::byte* find_local(Warp& warp, std::uint64_t address, unsigned bytes, bool write, int lane) {
  const std::uint64_t size = warp.block().cluster().program().local_bytes;
  if (bytes > size || address > size - bytes) {
    raise(Fault::out_of_bounds,
          describe(bytes, write, "local", address) + ": a thread has " + std::to_string(size) +
              " bytes of local memory",
          lane);
  }
  return warp.local(lane) + address;
}

std::byte* find_parameter(const Warp& warp, std::uint64_t address, unsigned bytes, bool write,
                          int lane) {
  const std::span<const std::byte> arguments = warp.block().cluster().launch().arguments;
  if (write) {
    raise(Fault::out_of_bounds,
          describe(bytes, write, "parameter", address) + ": a kernel's parameters are read-only",
          lane);
  }
  if (bytes > arguments.size() || address > arguments.size() - bytes) {
    raise(Fault::out_of_bounds,
          describe(bytes, write, "parameter", address) + ": the kernel has " +
              std::to_string(arguments.size()) + " bytes of arguments",
          lane);
  }
  return const_cast<std::byte*>(arguments.data()) + address;  // only read: see above
}

}  // namespace

Space resolve_generic(std::uint64_t& address) {
  const std::uint64_t window = address & kWindowMask;
  if (window != kSharedWindow && window != kLocalWindow && window != kParamWindow) {
    return Space::global;
  }
  address &= ~kWindowMask;
  return window == kSharedWindow  ? Space::shared
         : window == kLocalWindow ? Space::local
                                  : Space::param;
}

std::byte* access_unwatched(Warp& warp, Space& space, std::uint64_t& address, unsigned bytes,
                            bool write, int lane, bool peers) {
  if (space == Space::none) {
    space = resolve_generic(address);
    peers = true;
  } else if (space == Space::local || space == Space::param) {
    // Addresses in these spaces may be offsets or carry their window; a function's own .param
    // variables live in local memory.
    const std::uint64_t window = address & kWindowMask;
    if (window == kLocalWindow || window == kParamWindow) space = resolve_generic(address);
  }
  switch (space) {
    case Space::shared:
      check_alignment(address, bytes, bytes, write, "shared", lane);
      check_peer(warp, address, bytes, write, lane, peers);
      return find_shared(warp.block().cluster(), address, bytes, write, lane);
    case Space::local:
      check_alignment(address, bytes, bytes, write, "local", lane);
      return find_local(warp, address, bytes, write, lane);
    case Space::param:
      check_alignment(address, bytes, bytes, write, "parameter", lane);
      return find_parameter(warp, address, bytes, write, lane);
    default:
      check_alignment(address, bytes, bytes, write, "global", lane);
      return find_global(warp, address, bytes, write, lane);
  }
}

std::byte* access(Warp& warp, Space space, std::uint64_t address, unsigned bytes, AccessKind kind,
                  int lane, bool peers) {
  const bool write = kind != AccessKind::read;
  std::byte* data = access_unwatched(warp, space, address, bytes, write, lane, peers);
  Shadow* shadow = space == Space::shared ? warp.block().cluster().shadow() : nullptr;
  if (shadow == nullptr) return data;
  const int rank = static_cast<int>(address >> kRankShift);
  const auto offset = static_cast<std::uint32_t>(address & kSharedOffsetMask);
  switch (kind) {
    case AccessKind::read:
      shadow->read(warp, rank, offset, bytes, lane);
      break;
    case AccessKind::write:
      shadow->write(warp, rank, offset, bytes, lane);
      break;
    case AccessKind::atomic:
      shadow->atomic(warp, rank, offset, bytes, lane);
      break;
  }
  return data;
}

std::byte* find_global(const Warp& warp, std::uint64_t address, std::uint64_t bytes, bool write,
                       int lane) {
  const Launch& launch = warp.block().cluster().launch();
  std::byte* data = launch.memory->find(address, bytes, write, lane);
  if (launch.overlap != nullptr) launch.overlap->access(warp, address, bytes, write, lane);
  return data;
}

std::byte* shared_bytes(Cluster& cluster, std::uint32_t shared_address, std::uint64_t bytes,
                        unsigned align, int lane) {
  check_alignment(shared_address, bytes, align, false, "shared", lane);
  return find_shared(cluster, shared_address, bytes, false, lane);
}

}  // namespace kiln::runtime::emulator
