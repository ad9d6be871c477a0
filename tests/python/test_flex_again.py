"""Calls of jit.flex_attention that come again are known where nothing that decided them changed."""

import concurrent.futures
import gc
import weakref

import pytest
import torch
from kiln import _core, jit
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

pytestmark = [
    pytest.mark.usefixtures("emulated"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]
MOST_CHANGES = 8  # kMostChanges of known_calls.cpp
Q, K, V = torch.randn(3, 1, 2, 40, 64, generator=torch.Generator().manual_seed(2)).half()


@pytest.fixture(name="emulated", autouse=True, scope="module")
def _emulated():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KILN_DEVICE", "emulator:sm_80")
        yield


def known(score_mod=None, mask_mod=None, block_mask=None, q=Q, k=K, v=V):
    return _core.known_variant(q, k, v, False, score_mod, mask_mod, block_mask)


def check(score_mod=None, mask_mod=None, q=Q, k=K, v=V):
    """A call agrees with PyTorch's own."""
    block_mask = mask_mod and create_block_mask(
        mask_mod, None, None, q.size(2), k.size(2), device="cpu"
    )
    want = flex_attention(q.float(), k.float(), v.float(), score_mod, block_mask)
    got = jit.flex_attention(q, k, v, score_mod, mask_mod=mask_mod)
    torch.testing.assert_close(got.float(), want, atol=2e-3, rtol=2e-3)


def make(cap=20.0, table=None):
    table = torch.rand(2) if table is None else table

    def score_mod(score, b, h, q_idx, kv_idx):
        return cap * torch.tanh(score / cap) + table[h]

    def set_cap(value):
        nonlocal cap
        cap = value

    def set_table(value):
        nonlocal table
        table = value

    return score_mod, set_cap, set_table


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def reach(b, h, q_idx, kv_idx):
    return q_idx - kv_idx < REACH


REACH = 7


def test_a_call_is_known_from_the_third_one_on():
    score_mod, *_ = make()
    for _ in range(2):
        assert known(score_mod, causal) is None
        check(score_mod, causal)
    assert known(score_mod, causal) is not None
    check(score_mod, causal)
    other = torch.randn(1, 2, 50, 64).half()
    assert known(score_mod, causal, q=other) is None
    assert known(score_mod) is None
    check(score_mod, causal, q=other)


def test_a_captured_value_that_changes_is_read():
    score_mod, set_cap, set_table = make()
    for _ in range(3):
        check(score_mod)
    for change in (lambda: set_cap(3.0), lambda: set_table(torch.rand(2))):
        change()
        assert known(score_mod) is None
        for _ in range(3):
            check(score_mod)
        assert known(score_mod) is not None


def test_memory_of_a_tensor_that_changes_is_read():
    table = torch.rand(2)
    score_mod, *_ = make(table=table)
    for _ in range(3):
        check(score_mod)
    table.fill_(2.0)  # elements are read at every call
    assert known(score_mod) is not None
    check(score_mod)
    base = torch.rand(4)
    # Other memory, the same with another stride, and other memory with it.
    for data in (base[:2], base[::2], torch.rand(4)[::2]):
        table.data = data
        assert known(score_mod) is None
        for _ in range(3):
            check(score_mod)
        assert known(score_mod) is not None


def test_a_global_that_changes_is_read(monkeypatch):
    for _ in range(3):
        check(None, reach)
    assert known(None, reach) is not None
    monkeypatch.setitem(globals(), "REACH", 3)
    assert known(None, reach) is None
    check(None, reach)


def test_a_name_that_is_given_to_a_global_is_read(monkeypatch):
    def mask_mod(b, h, q_idx, kv_idx):
        return abs(q_idx - kv_idx) < 9  # the built-in function, so far

    def without_abs(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < 9

    for _ in range(3):
        check(None, mask_mod)
    assert known(None, mask_mod) is not None
    monkeypatch.setitem(globals(), "abs", lambda value: value)
    assert known(None, mask_mod) is None
    # PyTorch's own does not see it.
    want = jit.flex_attention(Q, K, V, mask_mod=without_abs)
    for _ in range(3):
        assert jit.flex_attention(Q, K, V, mask_mod=mask_mod).equal(want)
    assert known(None, mask_mod) is not None
    monkeypatch.delitem(globals(), "abs")
    assert known(None, mask_mod) is None
    check(None, mask_mod)


def test_functions_that_a_callable_calls_are_read():
    def inner(distance):
        return distance < 4

    def mask_mod(b, h, q_idx, kv_idx):
        return inner(q_idx - kv_idx)

    for _ in range(3):
        check(None, mask_mod)
    assert known(None, mask_mod) is not None
    inner.__code__ = (lambda distance: distance < 11).__code__
    assert known(None, mask_mod) is None
    check(None, mask_mod)
    inner = None
    assert known(None, mask_mod) is None


def test_new_code_and_defaults_are_read():
    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    for _ in range(3):
        check(None, mask_mod)
    assert known(None, mask_mod) is not None
    mask_mod.__code__ = (lambda b, h, q_idx, kv_idx: q_idx - kv_idx < 5).__code__
    assert known(None, mask_mod) is None
    for _ in range(3):
        check(None, mask_mod)
    mask_mod.__defaults__ = (0,)
    assert known(None, mask_mod) is None


def test_lists_that_are_read_are_compared_at_every_call():
    reaches = [3]
    mask_mod = lambda b, h, q_idx, kv_idx: q_idx - kv_idx < reaches[0]  # noqa: E731
    for reach_now in (3, 3, 3, 8):
        reaches[0] = reach_now
        assert known(None, mask_mod) is None
        check(None, mask_mod)


def test_callables_that_no_weak_reference_takes():
    class Slotted:
        __slots__ = ("reach",)

        def __call__(self, b, h, q_idx, kv_idx):
            return q_idx - kv_idx < self.reach

    mask_mod, (score_mod, *_) = Slotted(), make()
    for mask_mod.reach in (3, 3, 3, 9):
        check(None, mask_mod)
        check(score_mod, mask_mod)


def test_what_changes_at_every_call_is_looked_at_no_more():
    score_mod, set_cap, _ = make()
    for number in range(3 * MOST_CHANGES):
        set_cap(2.0 + number // 2)
        check(score_mod)
    assert known(score_mod) is None
    set_cap(4.0)
    for _ in range(3):
        check(score_mod)
    assert known(score_mod) is None


def test_a_block_mask_that_was_written_to():
    block_mask = create_block_mask(causal, None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
    for _ in range(3):
        out = jit.flex_attention(Q, K, V, None, block_mask)
    assert known(None, causal, block_mask) is not None
    with pytest.raises(ValueError, match="give only one of them"):
        jit.flex_attention(Q, K, V, None, block_mask, mask_mod=causal)
    block_mask.kv_num_blocks.zero_()
    block_mask.full_kv_num_blocks.zero_()
    assert known(None, causal, block_mask) is None
    assert not jit.flex_attention(Q, K, V, None, block_mask).equal(out)


def test_other_lists_and_blocks_of_a_block_mask():
    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    block_mask = create_block_mask(mask_mod, None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
    for _ in range(3):
        out = jit.flex_attention(Q, K, V, None, block_mask)
    assert known(None, mask_mod, block_mask) is not None
    assert known(None, mask_mod) is None
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"):
        before = getattr(block_mask, name)
        dead = weakref.ref(before)
        setattr(block_mask, name, before.clone())
        assert known(None, mask_mod, block_mask) is None
        for _ in range(3):
            assert jit.flex_attention(Q, K, V, None, block_mask).equal(out)
        assert known(None, mask_mod, block_mask) is not None
        del before
        assert dead() is None
    block_mask.BLOCK_SIZE = (16, 32)
    assert known(None, mask_mod, block_mask) is None


def test_subclasses_and_other_ranks_are_not_known():
    class Tagged(torch.Tensor):
        pass

    for _ in range(3):
        check(None, causal)
    assert known(None, causal) is not None
    assert known(None, causal, q=Q.as_subclass(Tagged)) is None
    assert known(None, causal, q=Q[0]) is None
    assert known(None, causal, q=Q.to("meta")) is None
    assert known(None, causal, q=None) is None


def test_the_one_batch_of_keys_is_expanded():
    q = torch.randn(3, 2, 40, 64).half()
    outs = [jit.flex_attention(q, K, V, mask_mod=causal) for _ in range(4)]
    assert known(None, causal, q=q) is None
    assert all(out.equal(outs[0]) for out in outs) and outs[0].shape == q.shape


def test_a_tensor_that_requires_grad_is_refused():
    table = torch.rand(2)
    score_mod, *_ = make(table=table)
    for _ in range(3):
        check(score_mod)
    table.requires_grad_()
    with pytest.raises(ValueError, match="requires grad"):
        jit.flex_attention(Q, K, V, score_mod)
    with torch.no_grad():
        assert known(score_mod) is not None


def test_threads_that_call_at_once():
    mods = [make(cap=2.0 + i, table=torch.full((2,), float(i)))[0] for i in range(4)]
    wants = [jit.flex_attention(Q, K, V, score_mod) for score_mod in mods]

    def agrees(number):
        number %= len(mods)
        return jit.flex_attention(Q, K, V, mods[number]).equal(wants[number])

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(agrees, range(64)))


def test_nothing_is_kept_alive():
    table = torch.rand(2)
    score_mod, set_cap, set_table = make(table=table)
    for _ in range(3):
        check(score_mod)
    assert known(score_mod) is not None
    dead = weakref.ref(table)
    set_table(None)
    del table
    gc.collect()
    assert dead() is None and known(score_mod) is None
    dead = weakref.ref(score_mod)
    del score_mod, set_cap, set_table
    gc.collect()
    assert dead() is None
