"""mov, selp, slct, set, setp, predicate logic, prmt, cvt, cvta, isspacep."""

import numpy as np
from instruction import Case

LANES = np.arange(32, dtype=np.uint32)

CASES = [
    Case("mov.b32", "mov.b32 %o0, %i0;", [LANES * 7], ["u32"], [LANES * 7]),
]
