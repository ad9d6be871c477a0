"""What the tests of kernels run on: one device and one size, which the options of pytest choose.

tests/kernels/conftest.py calls choose() before it imports a test file, so that these may ask at
once. Elsewhere, nothing chosen, it is the emulated device in the small size.
"""

import contextlib
import dataclasses
import os
import re
import zlib

DEVICES, SIZES = ("emulator", "cuda"), ("small", "full")
EMULATED_ARCH = "sm_90a"
SEEDS = 5
# The emulated device of tests that are marked few_multiprocessors: a call of so many tiles as there
# are multiprocessors takes seconds with 132 of them.
FEW_MULTIPROCESSORS = 12

_chosen = {"device": "emulator", "size": "small"}


def why_no_gpu():
    """None where a CUDA device is here that PyTorch finds."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return None if torch.cuda.is_available() else "PyTorch finds no CUDA device"


def choose(device="auto", size="auto"):
    """`auto`: the GPU if there is one, and as full as the device is fast."""
    if device == "auto":
        device = "emulator" if why_no_gpu() else "cuda"
    if size == "auto":
        size = "full" if device == "cuda" else "small"
    _chosen.update(device=device, size=size)


def on_gpu():
    return _chosen["device"] == "cuda"


def is_full():
    return _chosen["size"] == "full"


def sized(*, small, full):
    """What a case has in the chosen size."""
    return full if is_full() else small


def by_device(*, gpu, emulator):
    """Returns what a case has on this device. The emulated one has FEW_MULTIPROCESSORS, and gets as
    many tiles for each of them as a GPU, in a tenth of the time."""
    return gpu if on_gpu() else emulator


def some_of(groups, *, of):
    """Small, one of `of` in turn, of which KILN_TEST_SEED decides the first; all in the full size
    and with KILN_TEST_FULL=1. For rows of tables: tests/emulator/test_kernels.cpp runs them too.
    """
    groups = list(groups)
    if is_full() or tests_all():
        return groups
    return groups[turn(of) :: of]


def described():
    device = "cuda" if on_gpu() else f"emulator:{EMULATED_ARCH}"
    return f"{device} in the {_chosen['size']} size"


def arch():
    """The architecture that the calls of a test meet."""
    if not on_gpu():
        return EMULATED_ARCH
    import torch

    if not torch.cuda.is_available():  # collecting alone
        return EMULATED_ARCH
    return "sm_{}{}".format(*torch.cuda.get_device_capability())


@dataclasses.dataclass(frozen=True)
class Order:
    """The emulated device's way with what a launch leaves open: who is first, when copies land."""

    schedule: str
    seed: int

    def on(self, arch=EMULATED_ARCH, options=""):
        import kiln

        return kiln.device(f"emulator:{arch}{options}", schedule=self.schedule, seed=self.seed)


def tests_all():
    return os.environ.get("KILN_TEST_FULL") == "1"


def turn(count, of=""):
    """A number below `count` that KILN_TEST_SEED and a text decide."""
    seed = os.environ.get("KILN_TEST_SEED", "0")
    return zlib.crc32(f"{seed}{of}".encode()) % count


def schedules():
    """What a test's `device` may run it under."""
    return ("cuda",) if on_gpu() else ("late", "eager")


def takes_its_turn(name, schedule):
    """Whether the test runs under this schedule: of the emulated device's two, KILN_TEST_SEED and
    the test's name without its schedule decide, as both take twice the time. With KILN_TEST_FULL=1
    it runs under both. tests/emulator runs every kernel under both in any case.
    """
    if on_gpu() or tests_all():
        return True
    return schedules()[turn(2, without_schedule(name))] == schedule


def without_schedule(name):
    """A test's name, the same under both schedules."""
    return re.sub(rf"\b({'|'.join(schedules())})\b", "", name)


def quick_device():
    """Where kernels are compiled ahead of the tests that judge them: no check, no search."""
    if on_gpu():
        return contextlib.nullcontext()
    import kiln

    return kiln.device(f"emulator:{EMULATED_ARCH},eager,checks=off,workers=1")
