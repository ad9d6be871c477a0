"""Arguments that are no tensors: each mistake gets one sentence that says what is allowed."""

import gc

import kiln
import numpy
import pytest
from fake_tensors import CudaArray
from kiln import jit

Q, OUT = CudaArray((1, 16, 4, 64)), CudaArray((1, 16, 4, 64))
A = CudaArray((32, 64))


def attention(**arguments):
    return jit.flash_attention(Q, Q, Q, out=OUT, **arguments)


def gemm(**arguments):
    return jit.gemm(A, A, trans_b=True, out=CudaArray((32, 32)), **arguments)


def refuses(kind, text, call, **arguments):
    with pytest.raises(kind) as error:
        call(**arguments)
    assert type(error.value) is kind
    assert text in str(error.value)


@pytest.mark.parametrize(
    "window", [3, "ab", (1,), (1, 2, 3), (1.5, 0), (True, 0), (None, 3), (3, None), None]
)
def test_window_must_be_a_pair_of_integers(window):
    refuses(TypeError, "window must be a pair (left, right)", attention, window=window)


def test_a_number_of_another_framework_that_is_not_whole():
    with pytest.raises(TypeError, match=r"top_k must be an integer, got array\(2\.\)"):
        jit.moe_route(CudaArray((2, 4)), top_k=numpy.array(2.0))
    refuses(TypeError, "window must be a pair", attention, window=(numpy.array(1.5), 0))
    with kiln.device("emulator"):  # in params, it is a number like any other
        a, b = numpy.ones((8, 16), numpy.float16), numpy.ones((16, 8), numpy.float16)
        out = jit.gemm(a, b, epilogue="acc * t", params={"t": numpy.array(2.5)})
    assert (out == 40).all()


def test_a_plan_of_a_cache_names_what_it_needs():
    q, cache = CudaArray((2, 1, 4, 64)), CudaArray((2, 8, 2, 64))
    with pytest.raises(ValueError, match="plan_attention: cache_seqlens is needed: how many keys"):
        jit.plan_attention(q, cache, cache)


def test_integers_of_other_sizes_are_told_which_one_to_take():
    with pytest.raises(TypeError, match=r"experts has dtype int16, .* cast it, to int32 say"):
        jit.moe_permute(
            numpy.ones((8, 16), numpy.float16), numpy.zeros((8, 2), numpy.int16), num_experts=3
        )


class Changing:
    """A number whose conversion changes the collection that holds it."""

    def __init__(self, value, change):
        self.value, self.change = value, change

    def __index__(self):
        self.change()
        gc.collect()
        [bytearray(size) for size in range(200)]  # takes the memory that was freed
        return self.value


def test_numbers_that_empty_their_list():
    window = []
    window += [Changing(5, window.clear), Changing(-1, window.clear)]
    with pytest.raises(kiln.CudaError):  # everything is fine but the device
        attention(window=window)
    tile = []
    tile += [Changing(size, tile.clear) for size in (128, 128, 32, 3)]
    with pytest.raises(kiln.CudaError):
        gemm(config=tile)


def test_numbers_that_lengthen_their_list():
    tile = []
    tile += [Changing(size, lambda: tile.extend([1] * 50)) for size in (128, 128, 32, 3)]
    with pytest.raises(kiln.CudaError):
        gemm(config=tile)


def test_numbers_that_empty_their_dict():
    tile = {}
    sizes = {"block_m": 128, "block_n": 128, "block_k": 32, "stages": 3}
    tile.update((key, Changing(size, tile.clear)) for key, size in sizes.items())
    refuses(ValueError, 'config lacks "block_n"', gemm, config=tile)


def test_window_below_minus_one():
    refuses(ValueError, "each >= -1 (-1 = open), got (-2, 0)", attention, window=(-2, 0))


@pytest.mark.parametrize("name", ["scale", "softcap"])
@pytest.mark.parametrize("value", [True, "1", numpy.zeros(2), [1.0]])
def test_numbers(name, value):
    refuses(TypeError, f"{name} must be a number", attention, **{name: value})


@pytest.mark.parametrize("value", [0, 1, None, "yes"])
def test_causal_is_a_bool(value):
    refuses(TypeError, "causal must be True or False", attention, causal=value)


def test_layout():
    refuses(ValueError, 'layout must be "bshd" or "bhsd", got "sbhd"', attention, layout="sbhd")
    refuses(TypeError, "layout must be a string", attention, layout=3)


def test_variant_must_be_one():
    refuses(TypeError, "variant must be a jit.Variant", attention, variant="softcap")


def test_negative_softcap_and_infinite_scale():
    refuses(ValueError, "softcap", attention, softcap=-1.0)
    refuses(ValueError, "scale must be a finite number", attention, scale=float("inf"))


def test_unknown_activation():
    refuses(ValueError, "swish", gemm, activation="swish")
    refuses(TypeError, "activation must be a string", gemm, activation=3)


def test_precision():
    allowed = 'precision must be None, "tf32" (for float32 inputs) or "fast" (for float8 inputs)'
    refuses(ValueError, f'{allowed}, got "high"', gemm, precision="high")


def test_accumulator():
    refuses(ValueError, 'accumulator must be "float32" or "float16"', gemm, accumulator="bfloat16")
    refuses(TypeError, "accumulator must be a dtype", gemm, accumulator="double double")


@pytest.mark.parametrize("pdl, told", [("always", '"always"'), (1, "1"), (None, "None")])
def test_pdl(pdl, told):
    refuses(ValueError, f'pdl must be False, True or "weights", got {told}', gemm, pdl=pdl)


@pytest.mark.parametrize("dtype", ["float8", object(), 3])
def test_out_dtype_must_be_a_dtype(dtype):
    refuses(TypeError, "out_dtype must be a dtype that Kiln computes with", gemm, out_dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", numpy.float32, numpy.dtype("float32"), "torch"])
def test_out_dtype_beside_another_out(dtype):
    if dtype == "torch":
        import torch

        dtype = torch.float32
    refuses(TypeError, "out_dtype is float32 but out is float16", gemm, out_dtype=dtype)


def test_what_was_given_is_cut_between_characters():
    for padding in range(4):
        given = "x" * padding + "\N{EURO SIGN}" * 60
        refuses(TypeError, "got '" + given[:20], attention, causal=given)
    unspeakable = type("Unspeakable", (), {"__repr__": lambda self: "\ud800"})
    refuses(TypeError, "Unspeakable", attention, causal=unspeakable())


def test_config():
    refuses(
        ValueError, 'config lacks "stages"', gemm, config={"block_m": 1, "block_n": 1, "block_k": 1}
    )
    refuses(TypeError, "config must be a dict or a tuple", gemm, config=(128, 128))
    refuses(TypeError, "config must be an integer", gemm, config=(128, 128, 32, "4"))
    unknown = {"block_m": 1, "block_n": 1, "block_k": 1, "stages": 1, "warps": 4}
    refuses(ValueError, "unknown keys", gemm, config=unknown)


def test_call_mistakes_read_as_python():
    with pytest.raises(TypeError, match="takes 3 positional arguments but 4"):
        jit.flash_attention(Q, Q, Q, True)
    with pytest.raises(TypeError, match="missing the argument 'v'"):
        jit.flash_attention(Q, Q)
    with pytest.raises(TypeError, match="multiple values for argument 'a'"):
        jit.gemm(A, A, a=A)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dropout'"):
        attention(dropout=0.1)
    with pytest.raises(TypeError, match="v must be a tensor, got None"):
        jit.flash_attention(Q, Q, None)


def test_keywords_that_are_not_interned():
    name = "".join(["cau", "sal"])
    refuses(TypeError, "causal must be True or False", attention, **{name: 2})


def test_numpy_bools_and_numbers_are_taken():
    with pytest.raises(kiln.CudaError):  # everything is fine but the device
        attention(causal=numpy.True_, scale=numpy.float32(0.5), window=[numpy.int64(3), 0])
