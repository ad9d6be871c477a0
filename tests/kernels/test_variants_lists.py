"""Lists of variants: logits in the list's order, masks joined, names of each variant alone."""

import weakref

import kiln
import pytest
import torch
from attention_case import AttentionCase
from fresh_variant import fresh_text
from kiln import jit
from storage import DEVICE, randn
from variant_case import run

pytestmark = pytest.mark.usefixtures("device")

CASE = AttentionCase(batch=2, heads=4, heads_kv=2, len_q=37, len_kv=53)

# Both have an x and a t, of different types and ranks.
CAPPED = jit.Variant(
    "capped",
    params={"x": "f32"},
    tensors={"t": "f32[h]"},
    logits="x * tanh(logit / x) + t",
    mask="kv != 3",
)
SHIFTED = jit.Variant(
    "shifted",
    params={"x": "i32"},
    tensors={"t": "i32[b, *]"},
    logits="1.5 * logit - t(b, kv % 7)",
    mask="kv % x != 1",
)
EVEN = jit.Variant("even", mask="(row + kv) % 2 == 0 || kv == row")


def values(seed=0):
    shift = torch.randint(0, 3, (2, 7), generator=torch.Generator().manual_seed(seed))
    return randn([4], torch.float32, 4 + seed), shift.to(torch.int32).to(DEVICE)


def test_logits_follow_one_another_and_masks_join():
    bias, shift = values()
    capped, shifted = CAPPED(x=2.0, t=bias), SHIFTED(x=5, t=shift)

    def cap(s, at):
        return 2.0 * torch.tanh(s / 2.0) + bias.to(s.dtype)[None, :, None, None]

    def move(s, at):
        return 1.5 * s - shift[:, (at.kv % 7).flatten()].to(s.dtype)[:, None, None, :]

    def mask(at):
        return (at.kv != 3) & (at.kv % 5 != 1)

    run([capped, shifted], CASE, logits=lambda s, at: move(cap(s, at), at), mask=mask)
    outs = []
    for order, logits in (
        ((capped, shifted, EVEN), lambda s, at: move(cap(s, at), at)),
        ((EVEN, shifted, capped), lambda s, at: cap(move(s, at), at)),
    ):
        outs.append(
            run(order, CASE, causal=True, logits=logits,
                mask=lambda at: mask(at) & (((at.row + at.kv) % 2 == 0) | (at.kv == at.row)))[0]
        )  # fmt: skip
    assert not torch.equal(*outs)  # else the order would be tested by nothing


def test_a_list_of_one_is_the_variant_and_an_empty_one_is_none():
    q, k, v = CASE.inputs()
    bound = CAPPED(x=2.0, t=values()[0])
    alone = jit.flash_attention(q, k, v, variant=bound)
    before = kiln.stats()["compiles"]
    assert torch.equal(jit.flash_attention(q, k, v, variant=[bound]), alone)
    assert kiln.stats()["compiles"] == before
    none = jit.flash_attention(q, k, v)
    assert torch.equal(jit.flash_attention(q, k, v, variant=[]), none)


def test_a_list_is_put_together_again_where_another_one_begins_alike():
    q, k, v = CASE.inputs()
    capped = CAPPED(x=2.0, t=values()[0])

    def out_of(*others):
        return jit.flash_attention(q, k, v, variant=[capped, *others])

    def shifted(seed):
        return SHIFTED(x=5, t=values(seed)[1])

    one, two = shifted(0), shifted(1)
    wants = [out_of(one), out_of(two), out_of(one, EVEN)]
    for others, want in (((one,), 0), ((one, EVEN), 2), ((one,), 0), ((two,), 1), ((one,), 0)):
        for _ in range(2):
            assert torch.equal(out_of(*others), wants[want])
    assert not torch.equal(wants[0], wants[1]) and not torch.equal(wants[0], wants[2])
    assert torch.equal(out_of(), jit.flash_attention(q, k, v, variant=capped))
    # Another variant may have the address of one that is no more.
    for seed in (0, 1, 0, 1):
        assert torch.equal(out_of(shifted(seed)), wants[seed])


def test_a_list_keeps_nothing_alive():
    q, k, v = CASE.inputs()
    capped, shifted = CAPPED(x=2.0, t=values()[0]), SHIFTED(x=5, t=values()[1])
    jit.flash_attention(q, k, v, variant=[capped, shifted])
    dead = weakref.ref(shifted)
    del shifted
    assert dead() is None


def test_other_values_of_a_list_run_the_same_kernel():
    fresh = jit.Variant("fresh", params={"x": "f32"}, logits=fresh_text())
    before = kiln.stats()["compiles"]
    q, k, v = CASE.inputs()
    for x in (1.0, 2.0):
        same = jit.flash_attention(q, k, v, variant=[EVEN, fresh(x=x)])
    assert kiln.stats()["compiles"] == before + 1
    assert torch.equal(same, jit.flash_attention(q, k, v, variant=EVEN))


FILE = """
#include "/kiln/base/math.cuh"
__device__ inline float helper(float x) { return %s; }
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kTransformsLogits = true;
  kiln::Slot<float> by;
  __device__ float logits(float logit, const kiln::Position&) const { return helper(logit) + by; }
};
"""


def test_files_of_a_list_may_share_names(tmp_path):
    made = []
    for i, text in enumerate(("2.0f * x", "x + 1.0f")):
        path = tmp_path / f"file{i}.cuh"
        path.write_text(FILE % text)
        made.append(jit.Variant(f"file{i}", params={"by": "f32"}, file=path))
    first, second = made
    run([EVEN, first(by=-0.5), second(by=0.25)], CASE, logits=lambda s, at: 2.0 * s + 0.75,
        mask=lambda at: ((at.row + at.kv) % 2 == 0) | (at.kv == at.row))  # fmt: skip


def test_a_list_for_sequences_in_a_cache():
    lengths = torch.tensor([70, 33], dtype=torch.int32, device=DEVICE)
    q = randn([2, 1, 4, 64], torch.float16, 7)
    k, v = randn([2, 96, 2, 64], torch.float16, 8), randn([2, 96, 2, 64], torch.float16, 9)
    bias, shift = values(1)
    variant = [CAPPED(x=2.0, t=bias), SHIFTED(x=5, t=shift)]
    out = jit.flash_attention_with_kvcache(q, k, v, cache_seqlens=lengths, variant=variant)
    for i, length in enumerate(lengths.tolist()):
        one = [CAPPED(x=2.0, t=bias), SHIFTED(x=5, t=shift[i : i + 1])]
        keys, values_ = k[i : i + 1, :length], v[i : i + 1, :length]
        expected = jit.flash_attention(q[i : i + 1], keys, values_, variant=one)
        assert (out[i].float() - expected[0].float()).abs().max() < 3e-3


def test_errors_name_the_variant_of_a_list(tmp_path):
    q, k, v = CASE.inputs()
    broken = jit.Variant("broken one", mask="kv < undefined_name")
    with pytest.raises(kiln.CompileError) as caught:
        jit.flash_attention(q, k, v, variant=[EVEN, broken])
    assert "variant 'broken one' mask(1): error" in str(caught.value)
    assert "undefined_name" in str(caught.value)
    path = tmp_path / "wrong.cuh"
    path.write_text("struct UserVariant : kiln::VariantDefaults {\n  not_a_type x;\n};")
    with pytest.raises(kiln.CompileError) as caught:
        jit.flash_attention(q, k, v, variant=[jit.Variant("wrong", file=path), EVEN])
    assert f"{path}(2)" in str(caught.value) and caught.value.path == str(path)


def test_most_tables_of_one_variant():
    """Their words, 11 for each, fit beside those of the call."""
    names = [f"t{i}" for i in range(8)]
    text = " + ".join(f"{name}(b, h, 0, 1, kv % {i + 2})" for i, name in enumerate(names))
    variant = jit.Variant("most", tensors={n: "f32[b, h, *, 2, *]" for n in names}, logits=text)
    tables = [randn([2, 4, 1, 2, i + 2], torch.float32, i) for i in range(8)]

    def logits(s, at):
        return (
            sum(
                t[:, :, 0, 1][:, :, (at.kv % (i + 2)).flatten()][:, :, None]
                for i, t in enumerate(tables)
            )
            + 0 * s
        )

    run(variant(**dict(zip(names, tables))), CASE, logits=logits)
    q, k, v = CASE.inputs()
    many = [variant(**dict(zip(names, tables)))] * 4
    with pytest.raises(ValueError, match="bytes of a kernel's arguments, and 2240 are free"):
        jit.flash_attention(q, k, v, variant=many)
