"""Runs PTX and cubins on the machine's GPU through the CUDA driver alone."""

import ctypes
import functools

import numpy as np

ERROR_LOG, ERROR_LOG_SIZE = 5, 6  # CUjit_option
CLUSTER_DIMENSION = 4  # CUlaunchAttributeID
MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76  # CUdevice_attribute
ELEMENTS = {  # CUtensorMapDataType
    "uint8": 0,
    "uint16": 1,
    "uint32": 2,
    "int32": 3,
    "uint64": 4,
    "float16": 6,
    "float32": 7,
    "float64": 8,
}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # bytes to CUtensorMapSwizzle


class LaunchAttribute(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_uint * 16),
    )


class LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


class TensorMap:
    """A parameter that describes `view`, a part of `array` that begins where it does: what
    kiln.TensorMap is to the emulated device."""

    def __init__(self, array, view, box, swizzle):
        self.array, self.view, self.box, self.swizzle = array, view, box, swizzle
        if view.ctypes.data != array.ctypes.data:
            raise ValueError("a tensor map's view must begin where its array does")

    def encode(self, address):
        """The 128 bytes for an array that lies at `address` on the device."""
        rank = self.view.ndim
        dims = (ctypes.c_uint64 * rank)(*self.view.shape[::-1])
        strides = (ctypes.c_uint64 * rank)(*self.view.strides[-2::-1])
        box = (ctypes.c_uint32 * rank)(*self.box[::-1])
        steps = (ctypes.c_uint32 * rank)(*([1] * rank))
        room = ctypes.create_string_buffer(128 + 64)
        aligned = -(-ctypes.addressof(room) // 64) * 64
        call(
            "cuTensorMapEncodeTiled", ctypes.c_void_p(aligned), ELEMENTS[self.view.dtype.name],
            rank, ctypes.c_void_p(address), dims, strides, box, steps, 0, SWIZZLES[self.swizzle],
            0, 0,
        )  # fmt: skip
        return ctypes.string_at(aligned, 128)


class DriverError(RuntimeError):
    pass


@functools.cache
def driver():
    return ctypes.CDLL("libcuda.so.1")


def call(function, *arguments):
    status = getattr(driver(), function)(*arguments)
    if status:
        name = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(name))
        raise DriverError(f"{function} failed: {(name.value or b'?').decode()} ({status})")


@functools.cache
def device():
    """The first device, with its primary context; the caller's thread gets it as its current."""
    call("cuInit", 0)
    number, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(number), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    return number, context


def capability():
    parts = []
    for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR):
        value = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device()[0])
        parts.append(value.value)
    return tuple(parts)


def runs(target):
    """Whether this GPU runs modules of a target: "sm_90a" means sm_90 alone."""
    digits = target[len("sm_") :]
    exact = not digits.isdigit()
    number = int(digits.rstrip("af"))
    wanted = divmod(number, 10)
    return capability() == wanted if exact else capability() >= wanted


def load(image):
    """A module of PTX, as text, or of a cubin, as bytes."""
    log = ctypes.create_string_buffer(1 << 16)
    options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    module = ctypes.c_void_p()
    try:
        data = image if isinstance(image, bytes) else image.encode()
        call("cuModuleLoadDataEx", ctypes.byref(module), data, 2, options, values)
    except DriverError as error:
        text = "" if isinstance(image, bytes) else image
        raise DriverError(f"{error}\n{log.value.decode(errors='replace')}\n{text}") from None
    return module


class Memory:
    """Copies of arrays in the device's memory while the block is open."""

    def __init__(self, arrays):
        self.arrays, self.addresses = arrays, []

    def __enter__(self):
        for array in self.arrays:
            address = ctypes.c_uint64()
            call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(array.nbytes, 16)))
            self.addresses.append(address)
            call("cuMemcpyHtoD_v2", address, pointer(array), ctypes.c_size_t(array.nbytes))
        return self

    def fetch(self):
        for array, address in zip(self.arrays, self.addresses):
            call("cuMemcpyDtoH_v2", pointer(array), address, ctypes.c_size_t(array.nbytes))

    def __exit__(self, *_):
        for address in self.addresses:
            driver().cuMemFree_v2(address)


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def launch(image, entry, grid, block, cluster, arguments, shared_bytes):
    """Runs one kernel. Arrays, those of tensor maps too, go to the device and come back; NumPy
    scalars go by value."""
    call("cuCtxSetCurrent", device()[1])
    module = load(image)
    try:
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        if shared_bytes > 48 * 1024:
            call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, shared_bytes)
        with Memory([array_of(a) for a in arguments if array_of(a) is not None]) as memory:
            start(function, grid, block, cluster, arguments, memory.addresses, shared_bytes)
            call("cuCtxSynchronize")
            memory.fetch()
    finally:
        driver().cuModuleUnload(module)


def array_of(argument):
    if isinstance(argument, TensorMap):
        return argument.array
    return argument if isinstance(argument, np.ndarray) else None


def start(function, grid, block, cluster, arguments, addresses, shared_bytes):
    rest = iter(addresses)
    values = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            values.append(next(rest))
        elif isinstance(argument, TensorMap):
            values.append(ctypes.create_string_buffer(argument.encode(next(rest).value), 128))
        else:
            values.append(ctypes.create_string_buffer(argument.tobytes(), argument.nbytes))
    pointers = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
    attribute = LaunchAttribute(CLUSTER_DIMENSION, b"", (ctypes.c_uint * 16)(*cluster))
    config = LaunchConfig()
    config.grid[:], config.block[:], config.shared_bytes = grid, block, shared_bytes
    if tuple(cluster) != (1, 1, 1):
        config.attributes, config.attribute_count = ctypes.pointer(attribute), 1
    call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
