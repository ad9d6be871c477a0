"""jit.Epilogue and the values of jit.gemm's epilogues: what may be given, and what is refused."""

import kiln
import numpy as np
import pytest
from kiln import jit

A = np.ones((8, 16), np.float16)
B = np.ones((16, 8), np.float16)
S = np.arange(8, dtype=np.float32)


@pytest.fixture(autouse=True)
def emulated():
    with kiln.device("emulator:sm_80"):
        yield


def scaled(**changes):
    given = dict(params={"t": "f32"}, tensors={"s": "f32[n]"}, value="acc * s[col] + t")
    return jit.Epilogue("scaled", **(given | changes))


def test_an_epilogue_shows_itself():
    assert repr(scaled()) == '<kiln.jit.Epilogue "scaled" (t, s)>'
    assert scaled().name == "scaled" and scaled()(t=1, s=S).name == "scaled"
    assert scaled().digest == scaled().digest != scaled(params={"t": "i32"}).digest


def test_numbers_of_every_kind():
    for t in (1.5, np.float32(1.5), np.float64(1.5)):
        out = jit.gemm(A, B, epilogue="acc + t", params={"t": t})
        assert (out == 17.5).all()
    for t in (3, np.int64(3)):
        out = jit.gemm(A, B, epilogue="acc + t / 2", params={"t": t})
        assert (out == 17).all(), "a whole number is an int"


def test_the_order_of_a_dict_makes_no_kernel():
    jit.gemm(A, B, epilogue="acc * a + b", params={"a": 1.0, "b": 2.0})
    with kiln.no_compile():
        out = jit.gemm(A, B, epilogue="acc * a + b", params={"b": 3.0, "a": 2.0})
    assert (out == 35).all()


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: scaled(value=""), "Epilogue 'scaled': needs value=, the expression of an output"),
        (lambda: scaled(value=3), "Epilogue: value must be a string, got 3"),
        (lambda: scaled(params={"acc": "f32"}), "'acc' cannot name a parameter or tensor"),
        (lambda: scaled(params={"t": "f64"}), 'must be "f32" or "i32", got "f64"'),
        (lambda: scaled(params=["t"]), "params must be a dict of names to types"),
        (lambda: scaled(tensors={"s": "f32"}), 'must be declared as "f32[n]", got "f32"'),
        (lambda: scaled(tensors={"s": "f32[h]"}), "expected m, n, batch, a whole number or *"),
        (lambda: scaled()(1.5, S), "Epilogue: values are passed by name: t, s"),
        (lambda: scaled()(t=1.5), "Epilogue 'scaled': missing s=; it takes t, s"),
        (lambda: scaled()(t=1.5, s=S, x=1), "no parameter or tensor 'x'; it takes t, s"),
        (lambda: scaled()(t=1.5, s=None), "Epilogue: s must be a tensor"),
    ],
)
def test_what_an_epilogue_refuses(make, text):
    with pytest.raises((TypeError, ValueError)) as error:
        make()
    assert text in str(error.value)


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(epilogue=scaled()), 'epilogue "scaled" needs its values: pass epilogue=e(...) with'),
        (dict(epilogue=3), "epilogue must be a string, or a jit.Epilogue with its values bound"),
        (dict(params={"t": 1.0}), "epilogue must be given with params or tensors, which it names"),
        (dict(epilogue=jit.Epilogue("e", value="acc"), params={"t": 1.0}), "has values of its own"),
        (dict(epilogue="acc", params=[1.0]), "params must be a dict of names to values, got [1.0]"),
        (dict(epilogue="acc", tensors={1: S}), "tensors must have strings as names, got 1"),
        (dict(epilogue="acc", tensors={"s": None}), "gemm's epilogue: s must be a tensor"),
        (dict(epilogue="acc", params={"t": "x"}), "gemm's epilogue: t must be a number"),
        (dict(epilogue="acc", params={"row": 1.0}), "'row' cannot name a parameter or tensor"),
        (dict(epilogue="acc", tensors={"s": S.astype(np.float64)}), "tensor 's' must be f32, f16"),
        (dict(epilogue="acc", tensors={"s": np.zeros((), np.float32)}), "must have 1 to 5 indices"),
        (dict(epilogue=scaled(tensors={"s": "f32[m, n]"})(t=1.0, s=S)), "must have 2 dimensions"),
        (dict(epilogue=scaled()(t=1.0, s=S[:3])), "s must have size 8 (or 1) in dimension 0 (n)"),
        (dict(epilogue=scaled(tensors={"s": "f32[3]"})(t=1.0, s=S)), "must have size 3 in"),
        (dict(out_dtype="uint8"), "out must be float16, bfloat16, float32, float8_e4m3fn"),
    ],
)
def test_what_a_call_refuses(options, text):
    with pytest.raises((TypeError, ValueError)) as error:
        jit.gemm(A, B, **options)
    assert text in str(error.value)


def test_errors_point_into_the_users_text():
    with pytest.raises(kiln.CompileError) as error:
        jit.gemm(A, B, epilogue="acc * s[col] + tt", params={"t": 1.0}, tensors={"s": S})
    assert 'gemm epilogue(1): error: identifier "tt" is undefined' in error.value.log
    assert "acc * s[col] + tt" in error.value.log
    with pytest.raises(kiln.CompileError, match="a table needs one index for each dimension"):
        jit.gemm(A, B, epilogue="acc * s[row, col]", tensors={"s": S})
