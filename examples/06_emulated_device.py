"""The emulated device: host arrays in place, and a kernel of one's own whose bug it finds."""

import kiln
import numpy as np
from kiln import jit

# Everywhere, with a GPU or without: the choice holds for this thread, here until the block ends.
a = np.arange(64, dtype=np.float16).reshape(8, 8) / 8
with kiln.device("emulator:sm_90a", schedule="late", seed=3):
    assert np.allclose(jit.gemm(a, a), a.astype(np.float32) @ a.astype(np.float32), rtol=1e-2)

# Reverses 64 numbers through shared memory.
REVERSE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 numbers)
{
  .reg .b32 %r<5>;
  .reg .b64 %d<3>;
  .shared .b32 buffer[64];
  mov.u32 %r0, %tid.x;
  ld.param.u64 %d0, [numbers];
  mul.wide.u32 %d1, %r0, 4;
  add.s64 %d0, %d0, %d1;
  ld.global.u32 %r1, [%d0];
  mov.u32 %r2, buffer;
  mad.lo.u32 %r3, %r0, 4, %r2;
  st.shared.u32 [%r3], %r1;
  bar.sync 0;
  sub.u32 %r4, 63, %r0;
  mad.lo.u32 %r3, %r4, 4, %r2;
  ld.shared.u32 %r1, [%r3];
  st.global.u32 [%d0], %r1;
  ret;
}
"""
numbers = np.arange(64, dtype=np.uint32)
kiln.emulate(REVERSE, block=64, arguments=[numbers])
assert (numbers == np.arange(64)[::-1]).all()

try:
    kiln.emulate(REVERSE.replace("bar.sync 0;", ""), block=64, arguments=[numbers])
except kiln.EmulatorError as error:
    print(f"without its barrier:\n{error}")
    print(f"ok: found {error.fault} in {error.kernel}, PTX line {error.ptx_line}")
