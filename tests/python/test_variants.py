"""jit.Variant: construction and binding."""

import kiln
import numpy as np
import pytest
from fake_tensors import CudaArray
from kiln import jit

SHAPE = (1, 16, 4, 64)


def attention(variant):
    return jit.flash_attention(
        *(CudaArray(SHAPE) for _ in range(3)), out=CudaArray(SHAPE), variant=variant
    )


def capped():
    return jit.Variant(
        "capped", params={"cap": "f32", "count": "i32"}, logits="cap * tanh(logit / cap) + count"
    )


def biased(spec="f32[h, q, kv]"):
    return jit.Variant("biased", tensors={"bias": spec}, logits="logit + bias")


def test_the_digest_is_of_the_content():
    assert capped().digest == capped().digest
    assert capped().digest != biased().digest
    assert len(capped().digest) == 32
    one, two = (jit.Variant(name, logits="2 * logit") for name in ("one", "two"))
    assert one.digest == two.digest  # the name is a label


def test_repr_and_name():
    assert repr(capped()) == '<kiln.jit.Variant "capped" (cap, count)>'
    assert capped()(cap=1.0, count=2).name == "capped"


def test_missing_and_unknown_values():
    with pytest.raises(TypeError, match="missing count=; it takes cap, count"):
        capped()(cap=1.0)
    with pytest.raises(TypeError, match="no parameter or tensor 'cup'"):
        capped()(cap=1.0, count=1, cup=2)
    with pytest.raises(TypeError, match="passed by name"):
        capped()(1.0, 2)


def test_types_of_values():
    with pytest.raises(TypeError, match="cap must be a number"):
        capped()(cap="1", count=1)
    with pytest.raises(TypeError, match="count must be an integer"):
        capped()(cap=1.0, count=1.5)
    with pytest.raises(TypeError, match="bias must be a tensor"):
        biased()(bias=None)


def test_bound_tensors_stay_alive():
    import weakref

    tensor = CudaArray((4, 16, 16), "<f4")
    reference = weakref.ref(tensor)
    bound = biased()(bias=tensor)
    del tensor
    assert reference() is not None
    del bound
    assert reference() is None


def test_calls_take_bound_variants():
    with pytest.raises(kiln.CudaError):
        attention(capped()(cap=3, count=1))
    with pytest.raises(ValueError, match="needs its values"):
        attention(capped())


def test_a_variant_without_values_needs_no_call():
    with pytest.raises(kiln.CudaError):
        attention(jit.Variant("doubled", logits="2 * logit"))


@pytest.mark.parametrize("shape", [(4, 16), (5, 16, 16)])
def test_shapes_are_checked_at_the_call(shape):
    with pytest.raises(ValueError, match="bias"):
        attention(biased()(bias=CudaArray(shape, "<f4")))


@pytest.mark.parametrize("spec", ["f32", "f32[h", "f64[h]", "f32[h, speed]", "[h]", ""])
def test_tensor_declarations(spec):
    with pytest.raises(ValueError, match=r"bias|type"):
        biased(spec)


def test_bad_definitions():
    with pytest.raises(ValueError, match="f32 or i32"):
        jit.Variant("v", params={"x": "f16"}, logits="x")
    with pytest.raises(ValueError):
        jit.Variant("v", params={"not a name": "f32"}, logits="logit")
    with pytest.raises(TypeError, match="logits must be a string"):
        jit.Variant("v", logits=3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": 3}, "name must be a string, got 3"),
        ({"params": {"cap": 3}}, "type of 'cap' must be a string, got 3"),
        ({"params": {3: "f32"}}, "must be a string, got 3"),
        ({"params": [("cap", "f32")]}, "params must be a dict of names to types"),
        ({"tensors": {"bias": None}}, "type of 'bias' must be a string, got None"),
        ({"tensors": 3}, "tensors must be a dict"),
        ({"logits": None, "file": 3}, "file must be a path, got 3"),
    ],
)
def test_types_of_definitions(arguments, text):
    with pytest.raises(TypeError) as error:
        jit.Variant(**{"name": "v", "logits": "logit", **arguments})
    assert str(error.value).startswith("Variant: ")
    assert text in str(error.value)


def test_template_files(tmp_path):
    path = tmp_path / "mine.cuh"
    with pytest.raises(FileNotFoundError, match=r"mine\.cuh"):
        jit.Variant("mine", file=path)
    path.write_text("struct UserVariant {};")
    assert jit.Variant("mine", file=path).digest == jit.Variant("mine", file=str(path)).digest
    with pytest.raises(ValueError, match="expressions or a file, not both"):
        jit.Variant("mine", file=path, logits="logit")


def test_macros_of_c_are_undefined_and_what_replaces_them():
    """As docs/variants.md says."""
    q = np.ones((1, 4, 1, 64), np.float16)
    with kiln.device("emulator:sm_90a"):
        for macro in ("INFINITY", "NAN", "FLT_MAX"):
            with pytest.raises(kiln.CompileError, match=f'identifier "{macro}" is undefined'):
                jit.flash_attention(q, q, q, variant=jit.Variant("macro", logits=macro))
        infinity, nan = "-__int_as_float(0x7f800000)", "__int_as_float(0x7fffffff)"
        hidden = jit.Variant("hidden", logits=f"kv > 1 ? {infinity} : 3.402823466e38f * 0.0f")
        _, lse = jit.flash_attention(q, q, q, variant=hidden, return_lse=True)
        np.testing.assert_allclose(lse, np.log(2), rtol=1e-3)
        spoilt = jit.flash_attention(q, q, q, variant=jit.Variant("spoilt", logits=nan))
        assert np.isnan(spoilt).all()
