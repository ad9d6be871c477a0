"""kiln.device: which device computes tensors in host memory."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from . import _core


class device:
    """Sets the device of this thread's calls on host memory, for a `with` block or for good.

    choice    "cuda" or "cuda:1": NumPy arrays are copied to that GPU and the results are copied
              back, which the call waits for; CPU tensors are refused. "emulator" or
              "emulator:sm_80": the emulated device computes NumPy arrays and CPU tensors in place.
              "auto": the emulated device, with one notice, if there is no CUDA driver; else "cuda"
    schedule  when asynchronous work is done: "late", at the last legal moment, or "eager", at once
    seed      0: warps and blocks take turns in order; any other number shuffles them
    checks    whether shared memory is watched for races, reads of what was never written and
              missing fences

    The last three are options of the emulator. They may also be written as a part of its name:
    "emulator:sm_90a,late,seed=3,checks=off". There, "multiprocessors=78" gives the device as many
    as an H20 has instead of an H200's 132, by which calls choose their kernels. A tensor in a GPU's
    memory always goes to its own device. KILN_DEVICE sets the default of the process. Raises
    ValueError for anything else.

        >>> import kiln, numpy
        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> with kiln.device("emulator:sm_80", schedule="late", seed=3):
        ...     kiln.explain("gemm", a, a)["arch"]
        'sm_80'
    """

    def __init__(
        self,
        choice: str = "auto",
        *,
        schedule: str | None = None,
        seed: int | None = None,
        checks: bool | None = None,
    ) -> None:
        if not isinstance(choice, str):
            raise TypeError(
                f'device: choice must be a name such as "cuda:0" or "emulator", got {choice!r}'
            )
        options = [] if schedule is None else [str(schedule)]
        if seed is not None:
            if not isinstance(seed, SupportsIndex):
                raise TypeError(f"device: seed must be a whole number, got {seed!r}")
            options.append(f"seed={operator.index(seed)}")
        if checks is not None:
            options.append(f"checks={'on' if checks else 'off'}")
        if options and not choice.startswith("emulator"):
            raise ValueError(
                f"device: schedule, seed and checks belong to the emulator, got {choice!r}"
            )
        if options:
            choice += ("," if ":" in choice else ":") + ",".join(options)
        self._choice = choice
        # One object may serve several blocks, also one inside the other. Each has the device before
        # it here; the first is that of the call, which the first block takes over.
        self._previous = [_core.set_device(choice)]
        self._is_entered = False

    def __enter__(self) -> device:
        if self._is_entered:
            self._previous.append(_core.set_device(self._choice))
        self._is_entered = True
        return self

    def __exit__(self, *exception: object) -> None:
        _core.set_device(self._previous.pop())

    def __repr__(self) -> str:
        if not self._previous:
            return "<kiln.device, not in use>"
        return f"<kiln.device, before it {self._previous[-1]!r}>"
