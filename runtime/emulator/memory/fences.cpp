// fence, membar, and instructions that only concern caches.
#include <atomic>

#include "runtime/emulator/async/hooks.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/memory/ops.h"
#include "runtime/emulator/memory/warp_access.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

// Within a cluster memory is sequentially consistent anyway; this is for other clusters' threads.
Flow fence_threads(Warp&, const Op&, Mask) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return Flow::next;
}

Flow fence_proxy_async(Warp& warp, const Op&, Mask mask) {
  if (Shadow* shadow = warp.block().cluster().shadow()) shadow->fence_proxy(warp, mask);
  fence_mbarrier_init(warp, mask);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return Flow::next;
}

Flow fence_init(Warp& warp, const Op&, Mask mask) {
  fence_mbarrier_init(warp, mask);
  return Flow::next;
}

Flow nothing(Warp&, const Op&, Mask) { return Flow::next; }

}  // namespace

void decode_fence(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  op.run = fence_threads;
  std::size_t operands = 0;
  if (modifiers.take("proxy")) {
    const int which = modifiers.take_one_of({"async", "alias", "tensormap::generic"});
    if (which < 0) decoder.unknown();
    if (which == 0) {
      // .global concerns no shared memory.
      const int space = modifiers.take_one_of({"global", "shared::cta", "shared::cluster"});
      op.run = space == 0 ? fence_threads : fence_proxy_async;
    }
    if (which == 2) {
      if (modifiers.take("acquire"))
        operands = 2;
      else if (!modifiers.take("release"))
        decoder.unknown();
      modifiers.take_one_of({"cta", "cluster", "gpu", "sys"});
    }
  } else if (modifiers.take("mbarrier_init")) {
    if (!modifiers.take("release") || !modifiers.take("cluster")) decoder.unknown();
    op.run = fence_init;
  } else {
    modifiers.take_one_of({"acq_rel", "sc", "acquire", "release"});
    if (modifiers.take_one_of({"cta", "cluster", "gpu", "sys"}) < 0) decoder.unknown();
  }
  modifiers.finish();
  decoder.expect_operands(instruction, operands, operands);
  if (operands == 2) {
    Op unused;
    decoder.address(instruction.operands[0], unused);
    if (decoder.literal(instruction.operands[1]) != 128) decoder.fail("the size must be 128");
  }
}

void decode_membar(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  op.run = fence_threads;
  if (modifiers.take("proxy")) {
    if (!modifiers.take("alias")) decoder.unknown();
  } else if (modifiers.take_one_of({"cta", "gl", "sys"}) < 0) {
    decoder.unknown();
  }
  modifiers.finish();
  decoder.expect_operands(instruction, 0, 0);
}

void decode_prefetch(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  take_memory_modifiers(modifiers);
  modifiers.take_one_of({"L1", "L2"});
  modifiers.take("tensormap");
  modifiers.finish();
  decoder.expect_operands(instruction, 1, 2);
  Op unused;
  decoder.address(instruction.operands[0], unused);
  if (instruction.operands.size() > 1) decoder.literal(instruction.operands[1]);
  op.run = nothing;
}

}  // namespace kiln::runtime::emulator
