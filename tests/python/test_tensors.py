"""How tensors are read: every transport, and every refusal with its cure."""

import kiln
import numpy
import pytest
import torch
from fake_tensors import (
    ABSENT_DEVICE,
    CPU,
    CUDA,
    CUDA_HOST,
    LOG,
    CudaArray,
    DlpackTensor,
    ExchangeTensor,
    NewerExchangeTensor,
    OldDlpackTensor,
)
from kiln import jit

SHAPE = (1, 16, 4, 64)


@pytest.fixture(autouse=True)
def on_cuda():
    """What is refused here depends on no driver: host memory is never emulated."""
    with kiln.device("cuda"):
        yield


def attention(q=None, k=None, v=None, *, make=CudaArray, **arguments):
    """A call that is right but for its device, which no machine has, and for the given tensors."""
    arguments.setdefault("out", make(SHAPE))
    tensors = [make(SHAPE) if tensor is None else tensor for tensor in (q, k, v)]
    return jit.flash_attention(*tensors, **arguments)


def refuses(kind, text, *tensors, **arguments):
    with pytest.raises(kind) as error:
        attention(*tensors, **arguments)
    assert type(error.value) is kind
    assert text in str(error.value)


def reaches_device(*tensors, **arguments):
    """Nothing is wrong with the arguments but the device that they claim."""
    with pytest.raises(kiln.CudaError):
        attention(*tensors, **arguments)


@pytest.mark.parametrize("make", [CudaArray, DlpackTensor, OldDlpackTensor, ExchangeTensor])
def test_every_transport_reaches_the_device(make):
    reaches_device(make=make)


def test_transports_mix():
    tensors = CudaArray(SHAPE), DlpackTensor(SHAPE), OldDlpackTensor(SHAPE)
    reaches_device(*tensors)


@pytest.mark.parametrize("make", [CudaArray, DlpackTensor, ExchangeTensor])
def test_shapes_and_strides_arrive(make):
    refuses(ValueError, "[1, 16, 3, 64]", None, None, make((1, 16, 3, 64)), make=make)


def test_strides_count_elements():
    # Bytes in one protocol, elements in the other: the same tensor whose last stride is 2.
    steps = (16 * 4 * 128, 4 * 128, 128, 2)
    refuses(ValueError, ": k ", None, CudaArray(SHAPE, strides=tuple(2 * s for s in steps)))
    refuses(ValueError, ": k ", None, DlpackTensor(SHAPE, strides=steps))
    refuses(ValueError, "stride of 3 bytes", None, CudaArray(SHAPE, strides=(8192, 512, 128, 3)))


def test_numpy_array():
    array = numpy.zeros(SHAPE, numpy.float16)
    refuses(TypeError, "k is no NumPy array but q is; pass NumPy arrays alone", array)
    refuses(TypeError, "v is in host memory but q is on cuda:63", None, None, array)
    biased = jit.Variant("biased", tensors={"bias": "f32[kv]"}, logits="logit + bias")
    with pytest.raises(TypeError, match=r"torch\.from_numpy\(x\)\.cuda\(\)"):
        biased(bias=array.astype(numpy.float32)[0, :, 0, 0])


def test_cpu_torch_tensor():
    tensor = torch.zeros(SHAPE, dtype=torch.float16)
    refuses(TypeError, "q is in host memory", tensor)
    refuses(TypeError, "tensor.cuda()", tensor)


@pytest.mark.parametrize("device", [CPU, CUDA_HOST])
def test_host_memory_through_dlpack(device):
    refuses(TypeError, "v is in host memory", None, None, DlpackTensor(SHAPE, device=(device, 0)))


def test_another_kind_of_device():
    refuses(TypeError, "DLPack type 8", None, DlpackTensor(SHAPE, device=(8, 0)))


def test_several_devices():
    other = CudaArray(SHAPE, device=ABSENT_DEVICE - 1)
    refuses(ValueError, "k is on cuda:62 but q is on cuda:63", None, other)
    refuses(ValueError, "sinks is on cuda:0", sinks=CudaArray((4,), "<f4", device=0))


def test_no_tensor_at_all():
    refuses(TypeError, "q must be a tensor (PyTorch, CuPy, or any object", [1, 2])
    refuses(TypeError, "got int", None, 3)


@pytest.mark.parametrize(
    ("typestr", "name"), [("<f8", "float64"), ("<f4", "float32"), ("<i4", "int32")]
)
def test_attention_dtypes(typestr, name):
    refuses(TypeError, name, CudaArray(SHAPE, typestr))


@pytest.mark.parametrize("typestr", ["<i2", "<c8", ">f2", "|S2", "<c32", "<f0", "<f", "<f-2"])
@pytest.mark.parametrize("strides", [None, (65536, 4096, 1024, 16)])
def test_dtypes_that_nothing_takes(typestr, strides):
    refuses(TypeError, "does not compute with", CudaArray(SHAPE, typestr, strides=strides))


def test_dtypes_must_agree():
    refuses(TypeError, ": k ", None, DlpackTensor(SHAPE, "b16"))


def test_bfloat16_of_array_interfaces_is_known_by_name():
    tensors = [CudaArray(SHAPE, "<V2") for _ in range(4)]
    for tensor in tensors:
        tensor.dtype = type("Dtype", (), {"name": "bfloat16"})()
    reaches_device(*tensors[:3], out=tensors[3])


def test_ranks():
    refuses(ValueError, ": q ", CudaArray((16, 4, 64)))
    refuses(ValueError, "q has 6 dimensions", CudaArray((1, 1, 1, 16, 4, 64)))


@pytest.mark.parametrize("rank", [-1, -(2**31), 6, 2**31 - 1])
def test_ranks_that_no_tensor_has(rank):
    for make in (DlpackTensor, OldDlpackTensor):
        tensor = make(SHAPE)
        tensor.managed.tensor.ndim = rank
        refuses(ValueError, f"k has {rank} dimensions", None, tensor)


FAR = [2**62, -(2**62), 2**61, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("stride", FAR)
@pytest.mark.parametrize("dimension", [1, 2])
def test_strides_that_no_memory_has(stride, dimension):
    strides = [16 * 4 * 64, 4 * 64, 64, 1]
    strides[dimension] = stride
    refuses(ValueError, "k has the shape", None, DlpackTensor(SHAPE, strides=tuple(strides)))
    refuses(ValueError, "reach further than 2^62 bytes", DlpackTensor(SHAPE, strides=strides))


@pytest.mark.parametrize("stride", FAR)
def test_strides_of_dimensions_of_one_may_be_anything(stride):
    strides = (stride, 4 * 64, 64, 1)
    reaches_device(DlpackTensor(SHAPE, strides=strides))


def test_shapes_that_no_memory_has():
    q = CudaArray((2**40, 2**40, 4, 64))
    with pytest.raises(ValueError):
        attention(q)


def test_masked_and_read_only_arrays():
    refuses(TypeError, "masked", CudaArray(SHAPE, mask=CudaArray(SHAPE, "|b1")))
    refuses(TypeError, "out is read-only", out=CudaArray(SHAPE, data=(1 << 40, True)))
    refuses(TypeError, "out is read-only", out=DlpackTensor(SHAPE, read_only=True))
    reaches_device(DlpackTensor(SHAPE, read_only=True))  # but it may be read


def test_future_dlpack():
    refuses(TypeError, "exports DLPack 2.x", DlpackTensor(SHAPE, version=(2, 0)))


def test_exports_that_fail_name_the_argument():
    class Tracer(DlpackTensor):
        def __dlpack__(self, **_):
            raise BufferError("traced")

    class Lost(DlpackTensor):
        def __dlpack_device__(self):
            raise RuntimeError("gone")

    with pytest.raises(TypeError) as error:
        attention(Tracer(SHAPE))
    expected = "q could not be exported through __dlpack__: BufferError: traced"
    assert str(error.value) == f"flash_attention: {expected}"  # and no traceback within it
    refuses(TypeError, "through __dlpack__: RuntimeError: gone", Lost(SHAPE))


def test_producers_are_told_the_stream():
    q, k = DlpackTensor(SHAPE), DlpackTensor(SHAPE)
    reaches_device(q)
    assert q.streams == [1]  # nobody has a current stream: the default one
    reaches_device(ExchangeTensor(SHAPE), k)
    assert k.streams == [77]  # the framework's current one, where the work goes


def test_array_interface_streams():
    reaches_device(CudaArray(SHAPE, stream=7), CudaArray(SHAPE, stream=7))
    refuses(ValueError, "another stream", CudaArray(SHAPE, stream=7), CudaArray(SHAPE, stream=8))
    refuses(ValueError, "stream 0", CudaArray(SHAPE, stream=0))


def test_outputs_come_from_the_framework():
    LOG.clear()
    q = ExchangeTensor((2, 16, 4, 64))
    k = ExchangeTensor((2, 32, 2, 64))
    v = ExchangeTensor((2, 32, 2, 72))
    with pytest.raises(kiln.CudaError):
        jit.flash_attention(q, k, v, return_lse=True)
    assert LOG == [
        ("stream", CUDA, ABSENT_DEVICE),
        ("allocate", (2, 16, 4, 72), "f16", ABSENT_DEVICE),
        ("allocate", (2, 4, 16), "f32", ABSENT_DEVICE),
    ]


def test_gemm_output():
    LOG.clear()
    a, b = ExchangeTensor((5, 32, 64)), ExchangeTensor((48, 64))
    with pytest.raises(kiln.CudaError):
        jit.gemm(a, b, trans_b=True, out_dtype=torch.float32)
    assert ("allocate", (5, 32, 48), "f32", ABSENT_DEVICE) in LOG


def test_a_newer_exchange_table_is_walked_back():
    reaches_device(*(NewerExchangeTensor(SHAPE) for _ in range(3)))


@pytest.mark.parametrize("make", [CudaArray, DlpackTensor])
def test_frameworks_without_an_allocator_need_out(make):
    with pytest.raises(TypeError, match="pass out=") as error:
        jit.flash_attention(make(SHAPE), make(SHAPE), make(SHAPE))
    assert make.__name__ in str(error.value)


def test_requires_grad():
    q = torch.zeros(SHAPE, dtype=torch.float16, requires_grad=True)
    refuses(ValueError, "torch.no_grad()", q)
    parameter = torch.nn.Parameter(torch.zeros(SHAPE, dtype=torch.float16))
    refuses(ValueError, "sinks requires grad", sinks=parameter)
    with torch.no_grad():  # the next thing that is wrong with it
        refuses(TypeError, "host memory", parameter)
    with torch.inference_mode():
        refuses(TypeError, "host memory", q)


def imaginary(*shape):
    """As PyTorch hands it out: a view with the negative bit."""
    part = torch.randn(*shape, dtype=torch.complex64).conj().imag
    assert part.is_neg()
    return part


def test_negative_views():
    half, negative = torch.ones(SHAPE).half(), torch._neg_view(torch.ones(SHAPE).half())
    matrix = torch.ones(8, 8).half()
    with kiln.device("emulator"):
        refuses(TypeError, "k is a view that PyTorch negates", half, negative, half, out=half)
        refuses(TypeError, "resolve_neg(), or the part of z.resolve_conj()", negative)
        refuses(TypeError, "out is a view", half, half, half, out=negative)
        with pytest.raises(TypeError, match="scale_a is a view that PyTorch negates"):
            jit.gemm(matrix, matrix, scale_a=imaginary(8, 1))
        with pytest.raises(TypeError, match="weight is a view"):
            jit.rms_norm(matrix, torch.nn.Parameter(imaginary(8), requires_grad=False))
        with pytest.raises(TypeError, match="bias is a view that PyTorch negates"):
            jit.Variant("v", tensors={"bias": "f32[kv]"}, logits="bias")(bias=imaginary(16))
        scale = imaginary(8, 1)
        scaled = jit.gemm(matrix, matrix, scale_a=scale.resolve_neg(), out_dtype=torch.float32)
        assert torch.allclose(scaled, 8 * scale.expand(8, 8))


def test_the_negative_bit_is_asked_for_at_every_call():
    tensor = torch.ones(8, 8).half()
    with kiln.device("emulator"):
        for _ in range(3):
            jit.gemm(tensor, tensor)
            with pytest.raises(TypeError, match="b is a view that PyTorch negates"):
                jit.gemm(tensor, torch._neg_view(tensor))


def test_torch_subclasses():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(SHAPE, dtype=torch.float16, device="cuda")
    refuses(TypeError, "k must be a torch.Tensor beside tensors that PyTorch traces with", fake)

    class Mine(torch.Tensor):
        pass

    mine = torch.zeros(SHAPE, dtype=torch.float16).as_subclass(Mine)
    refuses(TypeError, "Mine, a subclass of torch.Tensor", mine)


def test_tensors_without_memory():
    meta = torch.empty(SHAPE, dtype=torch.float16, device="meta")
    refuses(TypeError, "is on the meta device and has no numbers; give a tensor on a GPU", meta)
    sparse = torch.ones(SHAPE, dtype=torch.float16).to_sparse()
    refuses(TypeError, "is a sparse tensor, which no operation takes; give its to_dense()", sparse)
    rows = [torch.ones(SHAPE[1:], dtype=torch.float16)] * 2
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(rows, layout=layout)
        refuses(TypeError, "is a nested tensor, which no operation takes; give attention", nested)
