"""NumPy arrays on the GPU: the numbers of the same call on tensors, whatever the layout."""

import random
import threading

import kiln
import numpy as np
import pytest
import torch
from kiln import jit


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def on_gpu(array):
    return torch.from_numpy(array).cuda()


def same(array, tensor):
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array, tensor.cpu().numpy())


@pytest.mark.parametrize("rows", [1, 77, 4096])  # less than a block, and more than all lanes hold
def test_attention(rows):
    q, k, v = draw(2, rows, 8, 128), draw(2, 333, 2, 128, seed=1), draw(2, 333, 2, 128, seed=2)
    out, lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
    expected = jit.flash_attention(*map(on_gpu, (q, k, v)), causal=True, return_lse=True)
    same(out, expected[0])
    same(lse, expected[1])


def test_slices_reversed_and_expanded_arrays():
    qkv = draw(1, 200, 3, 4, 64)
    q, k, v = qkv[:, :, 0], qkv[:, ::-1, 1], qkv[:, ::2, 2][:, np.arange(200) // 2]
    mask = np.broadcast_to(np.arange(200) % 3 > 0, (200, 200))
    heads_first = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
    out = jit.scaled_dot_product_attention(*heads_first, mask)
    tensors = [on_gpu(np.ascontiguousarray(x)) for x in (*heads_first, mask)]
    same(out, jit.scaled_dot_product_attention(*tensors))


def test_gemm_into_an_array_of_the_caller_s():
    a, b, out = draw(300, 512), draw(512, 256, seed=1), np.full((300, 256), np.nan, np.float16)
    assert jit.gemm(a, b, activation="gelu", out=out) is out
    same(out, jit.gemm(on_gpu(a), on_gpu(b), activation="gelu"))


def test_rows_of_no_group_keep_what_the_caller_s_array_holds():
    a, b, counts = draw(2, 40, 64), draw(2, 64, 48, seed=1), np.array([3, 17], np.int32)
    out = np.full((2, 40, 48), np.nan, np.float16)
    expected = on_gpu(out)
    assert jit.gemm(a, b, counts=counts, out=out) is out
    jit.gemm(on_gpu(a), on_gpu(b), counts=on_gpu(counts), out=expected)
    same(out, expected)
    for group, count in enumerate(counts):
        assert np.isnan(out[group, count:]).all() and not np.isnan(out[group, :count]).any()


def test_a_call_inside_another_is_refused():
    """It would wait for the memory that the outer one holds, on the same thread."""
    a, refusals = draw(16, 16), []
    summand = random.SystemRandom().randrange(2**40)  # no cache has the kernel

    def listen(event):
        try:
            jit.gemm(a, a)
        except kiln.Error as error:
            refusals.append(str(error))

    with kiln.on_compile(listen):
        jit.gemm(a, a, epilogue=f"acc + {summand}.0f")
    assert refusals and all("inside another call with NumPy arrays" in text for text in refusals)
    same(jit.gemm(a, a), jit.gemm(on_gpu(a), on_gpu(a)))


def test_threads_take_turns():
    arrays = [draw(64 + 8 * i, 256, seed=i) for i in range(8)]
    results = [None] * 8

    def work(i):
        for _ in range(5):
            results[i] = jit.gemm(arrays[i], arrays[i], trans_b=True)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for array, result in zip(arrays, results):
        same(result, jit.gemm(on_gpu(array), on_gpu(array), trans_b=True))


def test_explained_without_a_copy():
    q = draw(1, 16, 4, 64)
    assert kiln.explain("flash_attention", q, q, q)["device"] == torch.cuda.get_device_name()
