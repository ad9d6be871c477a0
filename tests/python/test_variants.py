"""jit.Variant: construction and binding."""

import copy
import pickle
import weakref

import kiln
import numpy as np
import pytest
import torch
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
    tensor = CudaArray((4, 16, 16), "<f4")
    reference = weakref.ref(tensor)
    bound = biased()(bias=tensor)
    del tensor
    assert reference() is not None
    del bound
    assert reference() is None


def change_storage_by_conversion(module):
    module.double()


def change_storage_by_data(module):
    module.bias.data = torch.zeros(1)


@pytest.mark.parametrize("change", [change_storage_by_conversion, change_storage_by_data])
def test_bound_tensors_keep_their_storage(change):
    memory = np.linspace(0, 4, 16, dtype=np.float32)
    module = torch.nn.Module()
    module.bias = torch.nn.Parameter(torch.from_numpy(memory), requires_grad=False)
    q, k = torch.ones(1, 4, 1, 64).half(), torch.ones(1, 16, 1, 64).half()
    v = torch.arange(16.0).half().reshape(1, 16, 1, 1).expand(1, 16, 1, 64).contiguous()
    with kiln.device("emulator"):
        bound = biased("f32[kv]")(bias=module.bias)
        before = jit.flash_attention(q, k, v, variant=bound)
        reference = weakref.ref(memory)
        del memory
        change(module)
        assert reference() is not None, "the memory that the variant reads was freed"
        assert torch.equal(jit.flash_attention(q, k, v, variant=bound), before)
    del bound
    assert reference() is None


def copies(thing):
    return [copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))]


def test_variants_are_copied_and_pickled(tmp_path):
    path = tmp_path / "mine.cuh"
    path.write_text("struct UserVariant {};")
    for variant in (capped(), biased(), jit.Variant("mine", file=path)):
        for copied in copies(variant):
            assert copied.digest == variant.digest
            assert repr(copied) == repr(variant)


def test_a_module_with_a_bound_variant_is_copied_and_pickled():
    module = torch.nn.Module()
    module.bias = torch.nn.Parameter(torch.rand(16), requires_grad=False)
    variant = jit.Variant(
        "both",
        params={"cap": "f32", "count": "i32"},
        tensors={"bias": "f32[kv]"},
        logits="cap * bias + count",
    )
    q, k, v = (torch.rand(1, 16, 1, 64).half() for _ in range(3))
    with kiln.device("emulator"):
        module.variant = variant(cap=0.1, count=3, bias=module.bias)
        out = jit.flash_attention(q, k, v, variant=module.variant)
        for copied in copies(module):
            assert copied.variant.name == "both"
            assert torch.equal(jit.flash_attention(q, k, v, variant=copied.variant), out)
        deep = copy.deepcopy(module)
        module.bias.copy_(torch.linspace(0, 9, 16))
        assert not torch.equal(jit.flash_attention(q, k, v, variant=module.variant), out)
        assert torch.equal(jit.flash_attention(q, k, v, variant=deep.variant), out)


@pytest.mark.parametrize("state", [(), ("{",), ("{", ""), ('{"name": 3}', ""), (3, 4), (None, [])])
def test_states_that_no_pickle_has(state):
    for made in (capped(), capped()(cap=1.0, count=1)):
        new = type(made).__new__(type(made))
        with pytest.raises((TypeError, ValueError)):
            new.__setstate__(state)


def test_objects_of_new_alone_are_refused():
    for made in (capped(), capped()(cap=1.0, count=1)):
        empty = type(made).__new__(type(made))
        uses = [copy.copy, lambda v: v.name, lambda v: attention(v)]
        if isinstance(made, jit.Variant):
            uses += [repr, lambda v: v.digest, lambda v: v(cap=1.0)]
        for use in uses:
            with pytest.raises(TypeError, match="made by __new__ alone"):
                use(empty)


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


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((4, 33, 1), r"size 32 in dimension 1 as declared, got \[4, 33, 1\]"),
        ((4, 1, 1), "size 32 in dimension 1"),
        ((4, 32, 0), r"size from 1 to 2\^31 - 1 in dimension 2, got"),
        ((5, 32, 1), "size 4 \\(or 1\\) in dimension 0"),
        ((4, 32), "must have 3 dimensions"),
    ],
)
def test_shapes_of_tables_are_checked_at_the_call(shape, text):
    table = jit.Variant("table", tensors={"t": "i64[h, 32, *]"}, mask="t(h, 0, 0) == kv")
    with pytest.raises(ValueError, match=text):
        attention(table(t=CudaArray(shape, "<i8")))
    with pytest.raises(kiln.CudaError):
        attention(table(t=CudaArray((4, 32, 9), "<i8")))
    far = CudaArray((4, 32, 2), "<i8", strides=(8, 8, 1 << 31))
    with pytest.raises(ValueError, match=r"a stride below 2\^31 bytes in its last dimension, got"):
        attention(table(t=far))
    assert table.digest != biased().digest


@pytest.mark.parametrize(
    "spec",
    ["f32", "f32[h", "f64[h]", "f32[h, speed]", "[h]", "", "f32[0]", "f32[-1]", "f32[**]", "f32[]",
     "f32[08]", "f32[9999999999]"],
)  # fmt: skip
def test_tensor_declarations(spec):
    with pytest.raises(ValueError, match=r"bias|type"):
        biased(spec)


def test_the_spec_of_a_list_names_its_kernel():
    """As prewarm and preload take it."""
    table = jit.Variant("table", tensors={"t": "u8[h, 2]"}, logits="logit + t(h, kv % 2)")
    even = jit.Variant("even", mask="kv % 2 == 0")
    q = np.ones((1, 4, 1, 64), np.float16)
    with kiln.device("emulator:sm_80"):
        variant = [table(t=np.ones((1, 2), np.uint8)), even]
        explained = kiln.explain("flash_attention", q, q, q, variant=variant)
    spec = explained["spec"]
    assert [one["name"] for one in spec["variant"]] == ["table", "even"]
    kernels = kiln.prewarm([spec], explained["arch"], check=True)["kernels"]
    assert [kernel["key"] for kernel in kernels] == [explained["key"]]
    assert "variant table + even" in kernels[0]["what"]


def test_bad_definitions():
    with pytest.raises(ValueError, match='"f32" or "i32", got "f16"'):
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
    with pytest.raises(ValueError, match="expressions or a file, not both"):
        jit.Variant("mine", file=path, mask="kv <= q")
    path.write_text("struct UserVariant : UserMask {};")
    asking = [jit.Variant("mine", file=path, mask=mask) for mask in ("kv <= q", "kv < q")]
    assert asking[0].digest != asking[1].digest


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


def test_kernels_of_a_mask_that_reads_elements_come_with_that_of_their_bounds():
    tensors = [["mine", "i32[b, q]"], ["its", "i32[b, kv]"], ["weight", "f32[b, kv]"]]
    spec = {"op": "flash_attention", "head_dim": 64, "mask": "causal"}

    def ops(**fields):
        report = kiln.prewarm({**spec, **fields}, "sm_90a", check=True)
        return [kernel["spec"]["op"] for kernel in report["kernels"]]

    for mask, is_bounded in (("mine == its", True), ("weight < 0.5f", False)):
        variant = {"name": "of_elements", "tensors": tensors, "mask": mask}
        assert ops(variant=variant).count("bound_elements") == is_bounded
        assert set(ops(variant=variant, storage="ragged")) == {"flash_attention"}
