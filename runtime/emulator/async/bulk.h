// Bulk copies: cp.async.bulk, cp.reduce.async.bulk and their tensor forms.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/emulator/async/address.h"
#include "runtime/emulator/async/async.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {

// One lane's write to global memory, which completes through a bulk group.
struct BulkTransfer {
  BulkWork work;
  int lane = 0;
  std::uint32_t group = 0;
  bool read_waited = false;  // the lane knows that the source may be written again
  bool landed = false;
  std::shared_ptr<const Shadow::Operation> operation;
};

struct BulkGroups {
  std::array<std::uint32_t, kLanes> committed{};
  std::vector<BulkTransfer> transfers;  // by age
};

// Element-wise `to = to op from`. Global memory is shared with other blocks: then each element is
// updated atomically.
using BulkReduce = void (*)(std::byte* to, const std::byte* from, std::size_t bytes, bool atomic);
// Takes .redOp and .type (the latter from the modifiers, or `type` where a tensor map gives it).
// Null: no reduction among the modifiers. decoder.unknown() for combinations the ISA lacks.
enum class BulkOperation : std::uint8_t { add, min, max, inc, dec, bit_and, bit_or, bit_xor };
std::optional<BulkOperation> take_bulk_operation(Modifiers& modifiers);
BulkReduce bulk_reduce(BulkOperation operation, Type type);  // null: not an operation of the ISA

// What the parts of a bulk instruction have in common.
struct BulkExtra : OpExtra {
  AsyncAddress destination, source, barrier;
  Ref bytes = kNoRef;
  Ref multicast = kNoRef;  // a 16-bit mask of ranks
  BulkReduce reduce = nullptr;
};

// The blocks that a load goes to: those of the mask, or the destination's own.
std::vector<std::uint32_t> bulk_targets(const Warp& warp, std::uint32_t destination, Ref multicast,
                                        int lane);
// At `address` in another block of the cluster.
inline std::uint32_t in_block(std::uint32_t rank, std::uint32_t address) {
  return rank << kRankShift | offset_of(address);
}

// A load's way: `read` fills, `write` lands in the blocks `targets` at `destination`; then the
// mbarriers at `barrier` of each of them get the bytes. Checks the barrier at issue.
struct BulkLoad {
  std::vector<std::uint32_t> targets;
  std::uint32_t destination = 0, barrier = 0;
  std::uint32_t bytes = 0;   // what the mbarrier counts
  std::uint32_t extent = 0;  // of the destination
  std::function<void()> read;
  std::function<void(std::uint32_t address)> write;
  // The source, when it is shared memory.
  std::optional<std::uint32_t> shared_source;
};
void issue_bulk_load(Warp& warp, BulkLoad load, int lane);
// A store's: `read` takes what lies in the `parts` behind the shared address `source`.
struct SharedPart {
  std::uint32_t offset = 0, bytes = 0;
};
void issue_bulk_store(Warp& warp, std::function<void()> read, std::function<void()> write,
                      std::uint32_t source, std::span<const SharedPart> parts, int lane);

void decode_bulk(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_bulk_tensor(Decoder& decoder, const Instruction& instruction, Op& op);
// commit_group and wait_group; whether the instruction is one of these.
bool decode_bulk_group(Decoder& decoder, const Instruction& instruction, Op& op);

}  // namespace kiln::runtime::emulator
