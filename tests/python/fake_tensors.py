"""Tensors of made-up frameworks, one per transport, at addresses that nobody reads."""

import ctypes
import itertools

ABSENT_DEVICE = 63  # an ordinal that no machine has
PLACES = itertools.count(1 << 40, 1 << 32)  # each tensor lies apart from all others

CPU, CUDA, CUDA_HOST = 1, 2, 3
# A capsule keeps the address of its name, so these live as long as the module.
VERSIONED, UNVERSIONED, EXCHANGE = b"dltensor_versioned", b"dltensor", b"dlpack_exchange_api"
CODES = {"i": 0, "u": 1, "f": 2, "b": 4, "c": 5}


def row_major(shape):
    strides, stride = [], 1
    for size in reversed(shape):
        strides.insert(0, stride)
        stride *= size
    return tuple(strides)


class CudaArray:
    """Only __cuda_array_interface__, as Numba's arrays."""

    def __init__(self, shape, typestr="<f2", *, device=ABSENT_DEVICE, strides=None, **fields):
        self.device = type("Device", (), {"id": device})()
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": tuple(shape),
            "typestr": typestr,
            "data": (next(PLACES), False),
            "strides": strides,
            **fields,
        }


class DlDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", DlDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DlManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DlTensor),
    ]


class DlManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DlTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


def new_capsule(pointer, name):
    function = ctypes.pythonapi.PyCapsule_New
    function.restype = ctypes.py_object
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return function(pointer, name, None)


class Described:
    """A tensor's DLPack description, kept alive with it."""

    def __init__(self, shape, dtype="f16", *, device=(CUDA, ABSENT_DEVICE), strides=None):
        self.shape = tuple(shape)
        self.device_pair = device
        rank = len(self.shape)
        self.sizes = (ctypes.c_int64 * rank)(*self.shape)
        self.steps = (ctypes.c_int64 * rank)(*(strides or row_major(self.shape)))
        self.dtype = DlDataType(CODES[dtype[0]], int(dtype[1:]), 1)
        self.address = next(PLACES)

    def fill(self, tensor):
        tensor.data = self.address
        tensor.device_type, tensor.device_id = self.device_pair
        tensor.ndim = len(self.shape)
        tensor.dtype = self.dtype
        tensor.shape = self.sizes
        tensor.strides = self.steps
        tensor.byte_offset = 0


class DlpackTensor(Described):
    """__dlpack__ and __dlpack_device__; records the stream that it was told."""

    def __init__(self, *args, read_only=False, version=(1, 1), **kwargs):
        super().__init__(*args, **kwargs)
        self.streams = []
        self.managed = DlManagedTensorVersioned(*version, flags=int(read_only))
        self.fill(self.managed.tensor)

    def __dlpack_device__(self):
        return self.device_pair

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        return new_capsule(ctypes.addressof(self.managed), VERSIONED)


class OldDlpackTensor(Described):
    """A producer from before DLPack 1.0: no max_version, an unversioned capsule."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.exports = 0
        self.managed = DlManagedTensor()
        self.fill(self.managed.tensor)

    def __dlpack_device__(self):
        return self.device_pair

    def __dlpack__(self, stream=None):
        self.exports += 1
        return new_capsule(ctypes.addressof(self.managed), UNVERSIONED)


class ExchangeTensor(Described):
    """A framework with the C exchange table; LOG records what was asked of it."""


LOG = []


def _allocate(prototype, out, error_context, set_error):
    tensor = prototype.contents
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    code = {value: key for key, value in CODES.items()}[tensor.dtype.code]
    made = ExchangeTensor(
        shape, f"{code}{tensor.dtype.bits}", device=(tensor.device_type, tensor.device_id)
    )
    LOG.append(("allocate", shape, f"{code}{tensor.dtype.bits}", tensor.device_id))
    managed = DlManagedTensorVersioned(1, 1)
    made.fill(managed.tensor)
    made.managed = managed
    _allocate.made[ctypes.addressof(managed)] = made
    out[0] = ctypes.addressof(managed)
    return 0


_allocate.made = {}


def _to_object(managed, out):
    made = _allocate.made.pop(managed)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    out[0] = id(made)
    return 0


def _tensor_from_object(tensor, out):
    tensor.fill(out.contents)
    return 0


def _current_stream(device_type, device_id, out):
    LOG.append(("stream", device_type, device_id))
    out[0] = 77
    return 0


_pointer = ctypes.POINTER(ctypes.c_void_p)
_FUNCTIONS = (
    ctypes.PYFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(DlTensor), _pointer, ctypes.c_void_p, ctypes.c_void_p
    )(_allocate),
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, _pointer)(lambda tensor, out: -1),
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _pointer)(_to_object),
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DlTensor))(
        _tensor_from_object
    ),
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, _pointer)(_current_stream),
)


class _ExchangeApi(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * 5),
    ]


_API = _ExchangeApi(1, 3, None, tuple(ctypes.cast(f, ctypes.c_void_p).value for f in _FUNCTIONS))
_NEWER_API = _ExchangeApi(2, 0, ctypes.addressof(_API), (None,) * 5)
ExchangeTensor.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(_API), EXCHANGE)


class NewerExchangeTensor(ExchangeTensor):
    """A framework whose table is of DLPack 2 and leads back to one of DLPack 1."""

    __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(_NEWER_API), EXCHANGE)
