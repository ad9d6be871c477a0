"""Variants: expressions, tensors, files, composition with the built-in options."""

import threading

import kiln
import pytest
import torch
from attention_case import AttentionCase, judge
from fresh_variant import fresh_text, fresh_variant
from grid import sized
from kiln import jit
from storage import DEVICE, randn
from variant_case import run

pytestmark = pytest.mark.usefixtures("device")

LENGTH = sized(small=70, full=130)
SQUARE = dict(batch=2, heads=4, heads_kv=2, len_q=LENGTH, len_kv=LENGTH)
SHAPE = {**SQUARE, "len_q": sized(small=50, full=130)}

CAPPED = jit.Variant("capped", params={"cap": "f32"}, logits="cap * tanh(logit / cap)")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"layout": "bhsd", "head_dim": 40}])
def test_softcap_by_expression_equals_the_built_in(dtype, options):
    case = AttentionCase(dtype=dtype, **SHAPE, **options)
    run(CAPPED(cap=0.5), case, logits=lambda s, at: 0.5 * torch.tanh(s / 0.5))
    out, lse = run(CAPPED(cap=4.0), case, logits=lambda s, at: 4.0 * torch.tanh(s / 4.0))
    q, k, v = case.inputs()
    built_in, built_in_lse = jit.flash_attention(
        q, k, v, causal=case.causal, softcap=4.0, layout=case.layout, return_lse=True
    )
    assert (out.float() - built_in.float()).abs().max() < 0.02
    assert (lse - built_in_lse).abs().max() < 1e-3


BIAS = jit.Variant("bias", tensors={"bias": "f32[h, q, kv]"}, logits="logit + bias")


@pytest.mark.parametrize("expanded", [False, True])
def test_a_bias_tensor_with_and_without_broadcast_strides(expanded):
    case = AttentionCase(**SQUARE)
    bias = randn([1 if expanded else 4, LENGTH, LENGTH], torch.float32, 4)
    bias = bias.expand(4, LENGTH, LENGTH)
    run(BIAS(bias=bias), case, logits=lambda s, at: s + bias.double()[None])


def test_a_bias_by_row_and_batch_in_half_precision():
    variant = jit.Variant(
        "row_bias", tensors={"bias": "bf16[b, h_kv, row, kv]"}, logits="logit + 2.0f * bias"
    )
    len_kv = sized(small=70, full=170)
    case = AttentionCase(batch=2, heads=6, heads_kv=2, len_q=50, len_kv=len_kv)
    bias = randn([2, 2, 50, len_kv], torch.bfloat16, 4)
    run(variant(bias=bias), case,
        logits=lambda s, at: s + 2.0 * bias.to(s.dtype).repeat_interleave(3, 1))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_a_mask_beside_an_attn_mask_that_is_read_by_pairs(dtype):
    case = AttentionCase(head_dim=64, len_q=20, len_kv=70)
    q, k, v = case.inputs()
    out, lse = case.outputs()
    given = randn([1, 1, 20, 70], torch.float32, 4)
    given = given > 0 if dtype == torch.bool else given
    mask = jit.Variant("thirds", mask="kv % 3 != 1")()
    jit.flash_attention(q, k, v, out=out.view, lse=lse, attn_mask=given, variant=mask)

    def logits(s, at):
        return s.masked_fill(~given, -torch.inf) if dtype == torch.bool else s + given.to(s.dtype)

    judge("pairs", q, k, v, out, lse, logits=logits, mask=lambda at: at.kv % 3 != 1)


def test_a_bool_mask_tensor_with_fully_masked_rows():
    variant = jit.Variant("masked", tensors={"allowed": "bool[b, row, kv]"}, mask="allowed")
    case = AttentionCase(**SHAPE)
    allowed = randn([2, case.len_q, case.len_kv], torch.float32, 8) < -0.5
    some = case.len_q // 2
    allowed[0, 17] = False
    allowed[1, some:] = False
    out, lse = run(variant(allowed=allowed), case, mask=lambda at: allowed[:, None])
    assert (out[0, 17] == 0).all() and (out[1, some:] == 0).all()
    assert (lse[0, :, 17] == -torch.inf).all()


def test_a_mask_expression_with_an_integer_parameter():
    variant = jit.Variant(
        "chunked", params={"chunk": "i32"}, mask="q / chunk == kv / chunk && kv <= q"
    )
    for chunk in (1, 7, 64, 1000):
        run(variant(chunk=chunk), AttentionCase(**SHAPE),
            mask=lambda at, c=chunk: (at.q // c == at.kv // c) & (at.kv <= at.q))  # fmt: skip


def test_every_name_of_an_expression():
    variant = jit.Variant(
        "names",
        logits="logit + 0.01f * (b + 2 * h + 3 * h_kv) + 0.001f * (row - q + kv) "
        "+ 0.002f * (len_q - len_kv) - 0.003f * at.distance",
        mask="row % 2 == 0 || kv != 3",
    )
    run(variant, AttentionCase(batch=2, heads=4, heads_kv=2, len_q=70, len_kv=100),
        logits=lambda s, at: s + 0.01 * (at.b + 2 * at.h + 3 * at.h_kv)
        + 0.001 * (at.row - at.q + at.kv) + 0.002 * (at.len_q - at.len_kv)
        - 0.003 * (at.q - at.kv),
        mask=lambda at: (at.row % 2 == 0) | (at.kv != 3))  # fmt: skip


def test_a_variant_beside_all_built_in_options():
    """softcap and ALiBi come before the expression, the masks are joined, sinks come last."""
    window = (sized(small=30, full=60), 0)
    case = AttentionCase(softcap=6.0, alibi="h", sinks="f32", window=window, causal=True, **SHAPE)
    variant = jit.Variant(
        "scaled", params={"factor": "f32"}, logits="factor * logit", mask="kv % 5 != 0"
    )
    run(variant(factor=1.5), case, logits=lambda s, at: 1.5 * s, mask=lambda at: at.kv % 5 != 0)


FILE_VARIANT = """
// Keys of the query's own block count, and their logits are shifted by the head.
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kTransformsLogits = true;
  static constexpr bool kMasks = true;
  kiln::Slot<float> shift;
  kiln::Slot<int> block;
  __device__ float logits(float logit, const kiln::Position& at) const {
    return logit + shift * static_cast<float>(at.h);
  }
  __device__ bool keep(const kiln::Position& at) const { return at.kv / block <= at.q / block; }
};
"""


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"sinks": "f32", "window": (30, 9)}])
def test_a_template_file(tmp_path, options):
    path = tmp_path / "by_block.cuh"
    path.write_text(FILE_VARIANT)
    variant = jit.Variant("by_block", params={"shift": "f32", "block": "i32"}, file=str(path))
    for block in (16, 33):
        run(variant(shift=0.25, block=block), AttentionCase(**SHAPE, **options),
            logits=lambda s, at: s + 0.25 * at.h,
            mask=lambda at, n=block: at.kv // n <= at.q // n)  # fmt: skip


@pytest.mark.emulated
def test_a_numpy_tensor_in_a_variant():
    case = AttentionCase(dtype="f16", **SQUARE)
    bias = randn([4, LENGTH, LENGTH], torch.float32, 4)
    q, k, v = case.inputs()
    out, lse = jit.flash_attention(
        q.numpy(), k.numpy(), v.numpy(), return_lse=True, variant=BIAS(bias=bias.numpy())
    )
    judge("NumPy bias", q, k, v, torch.from_numpy(out), torch.from_numpy(lse),
          logits=lambda s, at: s + bias.double()[None].to(s.dtype))  # fmt: skip


def test_binding_other_values_never_compiles():
    text = fresh_text()
    variant = jit.Variant("one label", params={"x": "f32"}, logits=text)
    case = AttentionCase(**SHAPE)
    before = kiln.stats()["compiles"]
    run(variant(x=1.0), case)
    assert kiln.stats()["compiles"] == before + 1
    run(variant(x=-3.0), case)
    same = jit.Variant("another label", params={"x": "f32"}, logits=text)
    run(same(x=2.0), case)
    assert kiln.stats()["compiles"] == before + 1


@pytest.mark.cuda
def test_sixteen_threads_on_one_cold_key_compile_once():
    variant = fresh_variant()
    case = AttentionCase(**SHAPE)
    inputs = [case.inputs() for _ in range(16)]
    torch.cuda.synchronize()
    before = kiln.stats()["compiles"]
    start, outputs, errors = threading.Barrier(16), [None] * 16, []

    def work(i):
        try:
            start.wait()
            outputs[i] = jit.flash_attention(*inputs[i], variant=variant(x=float(i)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert kiln.stats()["compiles"] == before + 1
    assert all(torch.equal(out, outputs[0]) for out in outputs)


@pytest.mark.cuda
def test_different_cold_keys_compile_in_parallel():
    case = AttentionCase(**SHAPE)
    q, k, v = case.inputs()
    before = kiln.stats()["compiles"]

    def work(variant):
        jit.flash_attention(q, k, v, variant=variant(x=1.0))

    threads = [threading.Thread(target=work, args=(fresh_variant(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kiln.stats()["compiles"] == before + 4


def test_a_broken_expression_points_to_the_users_text():
    variant = jit.Variant("broken", logits="logit + undefined_name")
    q, k, v = AttentionCase(**SHAPE).inputs()
    with pytest.raises(kiln.CompileError) as caught:
        jit.flash_attention(q, k, v, variant=variant)
    assert "undefined_name" in str(caught.value) and "logits" in str(caught.value)
    jit.flash_attention(q, k, v)  # the process goes on


def test_a_missing_file_is_one_clear_error(tmp_path):
    missing = tmp_path / "none.cuh"
    with pytest.raises((ValueError, OSError)) as caught:
        jit.Variant("none", file=str(missing))
    assert "none.cuh" in str(caught.value)


@pytest.mark.parametrize("shape", [[4, LENGTH, LENGTH - 1], [3, LENGTH, LENGTH], [LENGTH, LENGTH]])
def test_a_tensor_of_the_wrong_shape_is_refused(shape):
    q, k, v = AttentionCase(**SQUARE).inputs()
    with pytest.raises(ValueError, match="bias"):
        jit.flash_attention(q, k, v, variant=BIAS(bias=torch.zeros(shape, device=DEVICE)))


def test_a_tensor_of_the_wrong_dtype_is_refused():
    q, k, v = AttentionCase(**SQUARE).inputs()
    bias = torch.zeros([4, LENGTH, LENGTH], dtype=torch.float64, device=DEVICE)
    with pytest.raises(TypeError, match="bias"):
        jit.flash_attention(q, k, v, variant=BIAS(bias=bias))
