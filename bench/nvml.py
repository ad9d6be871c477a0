"""Clocks, power and limits, from the driver's management library by ctypes.

A query takes about a millisecond, where nvidia-smi takes as long as a whole cell; and no package is
needed. Absence of the library or of a figure is no error.
"""

from __future__ import annotations

import ctypes

SM_CLOCK, DIE = 1, 0
THROTTLES = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal, software",
    0x40: "thermal, hardware",
    0x80: "power brake",
}


def open_library():
    """None where there is no driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


class Nvml:
    def __init__(self, identity="", library=None):
        """`identity`: the device's UUID as PyTorch gives it; without, the first device."""
        self._library = library or open_library()
        self._handle = ctypes.c_void_p()
        if self._library is None:
            return
        place = ctypes.byref(self._handle)
        uuid = f"GPU-{identity}".encode()
        if not identity or self._library.nvmlDeviceGetHandleByUUID(uuid, place) != 0:
            self._library.nvmlDeviceGetHandleByIndex_v2(0, place)

    def sample(self):
        """The present state, or None."""
        return _known({
            "sm_mhz": self._number("nvmlDeviceGetClockInfo", SM_CLOCK),
            "power_w": self._number("nvmlDeviceGetPowerUsage", scale=1e-3),
            "celsius": self._number("nvmlDeviceGetTemperature", DIE),
            "throttled_by": self._throttles(),
        })  # fmt: skip

    def limits(self):
        return _known({
            "max_sm_mhz": self._number("nvmlDeviceGetMaxClockInfo", SM_CLOCK),
            "power_limit_w": self._number("nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
        })  # fmt: skip

    def driver(self):
        if self._library is None:
            return None
        text = ctypes.create_string_buffer(96)
        status = self._library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text)))
        return text.value.decode() if status == 0 else None

    def _throttles(self):
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)
        if bits is None:
            return None
        return [name for bit, name in THROTTLES.items() if bits & bit]

    def _number(self, name, *which, kind=ctypes.c_uint, scale=None):
        function = getattr(self._library, name, None)
        value = kind()
        if function is None or function(self._handle, *which, ctypes.byref(value)) != 0:
            return None
        return value.value if scale is None else value.value * scale


def _known(figures):
    return {name: figure for name, figure in figures.items() if figure is not None} or None
