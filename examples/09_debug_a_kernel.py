"""Debugging a kernel of one's own on the emulated device: two planted bugs, and what it reports."""

import kiln
import numpy as np

# Adds up 128 numbers as a tree in shared memory: halves, quarters, and so on.
TOTAL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry total(.param .u64 numbers, .param .u64 sum) {
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<2>;
  .shared .b32 part[128];
  mov.u32 %r0, %tid.x;
  ld.param.u64 %d0, [numbers];
  mul.wide.u32 %d1, %r0, 4;
  add.s64 %d0, %d0, %d1;
  ld.global.u32 %r1, [%d0];
  mov.u32 %r2, part;
  mad.lo.u32 %r2, %r0, 4, %r2;
  st.shared.u32 [%r2], %r1;
  mov.u32 %r3, 64;
HALVE:
  bar.sync 0;
  setp.lt.u32 %p, %r0, %r3;
  mad.lo.u32 %r4, %r3, 4, %r2;
  @%p ld.shared.u32 %r5, [%r4];
  @%p add.u32 %r1, %r1, %r5;
  @%p st.shared.u32 [%r2], %r1;
  shr.u32 %r3, %r3, 1;
  setp.ne.u32 %p, %r3, 0;
  @%p bra HALVE;
  ld.param.u64 %d1, [sum];
  setp.ne.u32 %p, %r0, 0;
  @!%p st.global.u32 [%d1], %r1;
  ret;
}
"""


def fault_of(ptx, numbers, **options):
    """None, if the sum is right, or the fault and the instruction at which it was seen."""
    total = np.zeros(1, np.uint32)
    try:
        kiln.emulate(ptx, block=128, arguments=[numbers, total], **options)
    except kiln.EmulatorError as error:
        print(f"{error}\n")
        return error.fault, error.instruction
    assert total[0] == numbers.sum()


numbers = np.arange(128, dtype=np.uint32)
assert not any(fault_of(TOTAL, numbers, seed=seed) for seed in range(8))  # any order of warps
# The barrier left the loop: a warp reads what another may not have added up yet.
hoisted = TOTAL.replace("HALVE:\n  bar.sync 0;", "  bar.sync 0;\nHALVE:")
assert fault_of(hoisted, numbers) == ("race on shared memory", "ld.shared.u32 %r5, [%r4]")
# 100 numbers for 128 threads, and no check of the index: the last 28 read behind the array.
assert fault_of(TOTAL, numbers[:100].copy()) == ("out-of-bounds access", "ld.global.u32 %r1, [%d0]")
print("ok: right as it is, and both bugs were found")
