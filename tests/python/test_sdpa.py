"""jit.scaled_dot_product_attention beside PyTorch's own, on the emulated device."""

import inspect

import kiln
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kiln import jit

sdpa = jit.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def emulated():
    with kiln.device("emulator:sm_90a"), torch.no_grad():
        torch.manual_seed(0)
        yield


def randn(*shape, dtype=torch.float16):
    return torch.randn(shape).to(dtype)


def matches(*arguments, **keywords):
    """Kiln's result, which is PyTorch's in double precision up to twice the error of PyTorch's
    own in the inputs' dtype."""
    out = sdpa(*arguments, **keywords)

    def precise(value):
        is_tensor = isinstance(value, torch.Tensor) and value.dtype != torch.bool
        return value.double() if is_tensor else value

    exact = F.scaled_dot_product_attention(
        *map(precise, arguments), **{key: precise(value) for key, value in keywords.items()}
    )
    assert out.shape == exact.shape and out.dtype == arguments[0].dtype
    step = 2.0**-8 if out.dtype == torch.bfloat16 else 2.0**-11
    torch.testing.assert_close(out.double(), exact, rtol=2 * step, atol=4 * step)
    return out


def test_the_signature_is_pytorch_s():
    schema = torch.ops.aten.scaled_dot_product_attention.default._schema
    ours = inspect.signature(sdpa).parameters
    assert list(ours) == [argument.name for argument in schema.arguments]
    for argument in schema.arguments:
        parameter = ours[argument.name]
        assert (parameter.kind == parameter.KEYWORD_ONLY) == argument.kwarg_only
        assert (parameter.default is parameter.empty) == (not argument.has_default_value())
        if argument.has_default_value():
            assert parameter.default == argument.default_value


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_causal", [False, True])
def test_plain_and_causal(dtype, is_causal):
    q, k, v = (randn(2, 4, 33, 64, dtype=dtype) for _ in range(3))
    matches(q, k, v, is_causal=is_causal)


@pytest.mark.parametrize("len_q, len_kv", [(5, 70), (70, 5), (1, 40), (40, 1), (64, 65)])
def test_causal_is_aligned_top_left(len_q, len_kv):
    q, k, v = randn(1, 2, len_q, 32), randn(1, 2, len_kv, 32), randn(1, 2, len_kv, 32)
    matches(q, k, v, is_causal=True)


def test_positional_arguments_and_a_head_dim_of_its_own_for_value():
    q, k, v = randn(1, 2, 9, 32), randn(1, 2, 11, 32), randn(1, 2, 11, 48)
    mask = torch.rand(9, 11) > 0.3
    matches(q, k, v, mask, 0.0, False, scale=0.3)


@pytest.mark.parametrize(
    "shape", [(2, 3, 17, 21), (2, 1, 17, 21), (1, 3, 1, 21), (17, 21), (17, 1), (1, 21)]
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.float32])
def test_masks_broadcast(shape, dtype):
    q, k, v = randn(2, 3, 17, 64), randn(2, 3, 21, 64), randn(2, 3, 21, 64)
    if dtype == torch.bool:
        mask = torch.rand(shape) > 0.4
        mask[..., 0] = True
    else:
        mask = torch.randn(shape).to(dtype)
        mask[torch.rand(shape) > 0.8] = -torch.inf
        mask[..., 0] = 0.5
    matches(q, k, v, attn_mask=mask)


def test_strided_and_transposed_masks():
    q, k, v = (randn(1, 2, 16, 64) for _ in range(3))
    wide = torch.randn(2, 16, 48).half()
    matches(q, k, v, wide[:, :, 1::3].unsqueeze(0))
    matches(q, k, v, (torch.rand(16, 16) > 0.5).logical_or(torch.eye(16) > 0).t())


def test_a_row_without_visible_keys_gives_zeros():
    q, k, v = (randn(1, 2, 20, 64) for _ in range(3))
    hidden = torch.ones(20, 20, dtype=torch.bool)
    hidden[3] = False
    out = matches(q, k, v, hidden)
    assert (out[:, :, 3] == 0).all() and (out[:, :, 4] != 0).any()
    bias = torch.zeros(20, 20).masked_fill(~hidden, -torch.inf)
    assert torch.equal(sdpa(q, k, v, bias), out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_hidden_by_the_least_float_is_the_mean(dtype):
    q, k, v = (randn(1, 2, 20, 64, dtype=torch.bfloat16) for _ in range(3))
    least = torch.finfo(dtype).min
    bias = torch.zeros(20, 20, dtype=dtype)
    bias[3] = bias[:, 5] = least
    out = matches(q, k, v, bias)
    torch.testing.assert_close(out[:, :, 3], v.mean(2), rtol=2e-2, atol=2e-2)
    bias[4] = -torch.inf
    assert (sdpa(q, k, v, bias)[:, :, 4] == 0).all()


def test_an_expanded_mask_is_never_copied():
    """32k x 32k and one byte: of 16 rows computed, of all explained."""
    n = 32 * 1024
    q = k = v = randn(1, 1, n, 8)
    mask = torch.ones(1, 1, dtype=torch.bool).expand(n, n)
    out = sdpa(q[:, :, :16], k, v, mask[:16])
    assert torch.equal(out, sdpa(q[:, :, :16], k, v, mask[:16].clone()))
    explained = kiln.explain("scaled_dot_product_attention", q, k, v, mask)
    assert explained["spec"]["attn_mask"] == "bool" and explained["workspace_bytes"] == 0


def test_the_documented_examples():
    """Of PyTorch's page, with one batch entry."""
    q, k, v = (torch.rand(1, 8, 128, 64).half() for _ in range(3))
    matches(q, k, v)
    q, k, v = (torch.rand(1, heads, 128, 64).half() for heads in (32, 8, 8))
    matches(q, k, v, enable_gqa=True)


def test_grouped_queries():
    q, k, v = randn(2, 8, 7, 64), randn(2, 2, 19, 64), randn(2, 2, 19, 64)
    matches(q, k, v, enable_gqa=True)
    matches(q, k, v, torch.randn(7, 19).half(), enable_gqa=True)
    matches(q, k[:, :1], v, enable_gqa=True)  # one head of keys, two of values


def test_heads_and_batches_broadcast():
    q, k, v = randn(2, 4, 7, 32), randn(1, 1, 9, 32), randn(2, 4, 9, 32)
    matches(q, k, k)
    matches(q, k, v)
    matches(q[:, :1], v, v)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3, 2)])
def test_other_ranks(lead):
    q, k, v = randn(*lead, 6, 32), randn(*lead, 10, 32), randn(*lead, 10, 32)
    matches(q, k, v)
    matches(q, k, v, torch.rand(*lead, 6, 10) > 0.2)


def test_two_batch_dimensions_that_do_not_lie_as_one():
    q = randn(3, 2, 2, 6, 32).transpose(0, 1)
    k = v = randn(2, 3, 2, 10, 32)
    bias = torch.randn(2, 1, 2, 6, 10).half()
    matches(q, k, v)
    matches(q, k, v, bias)


def test_numpy_arrays():
    q, k, v = (randn(1, 2, 12, 64) for _ in range(3))
    mask = torch.rand(12, 12) > 0.3
    out = sdpa(q.numpy(), k.numpy(), v.numpy(), mask.numpy())
    assert isinstance(out, np.ndarray)
    assert np.array_equal(out, sdpa(q, k, v, mask).numpy())


def test_random_calls():
    generator = np.random.default_rng(7)
    for _ in range(12):
        batch, groups, group = generator.integers(1, 4, 3)
        len_q, len_kv = generator.integers(1, 90, 2)
        dim, dim_v = 8 * generator.integers(1, 17, 2)
        q = randn(batch, groups * group, len_q, dim)
        k, v = randn(batch, groups, len_kv, dim), randn(batch, groups, len_kv, dim_v)
        kind = generator.integers(0, 4)
        mask = [None, torch.rand(len_q, len_kv) > 0.5, randn(batch, 1, len_q, len_kv), None][kind]
        matches(q, k, v, mask, is_causal=bool(kind == 3), enable_gqa=True)


@pytest.mark.parametrize(
    "error, words, change",
    [
        (ValueError, "dropout_p must be 0.0, got 0.5", {"dropout_p": 0.5}),
        (ValueError, "attn_mask must not be given beside is_causal", {"is_causal": True}),
        (TypeError, "scale must be a number, got the bool True", {"scale": True}),
        (TypeError, "is_causal must be True or False", {"is_causal": 1}),
        (TypeError, "attn_mask must be bool, float32 or float16 like query, got int32",
         {"attn_mask": torch.ones(4, 6, dtype=torch.int32)}),
        (TypeError, "attn_mask must be bool, float32 or float16 like query, got bfloat16",
         {"attn_mask": torch.ones(4, 6, dtype=torch.bfloat16)}),
        (ValueError, r"attn_mask must have shape \[2, 4, 4, 6\], each or 1, got \[2, 1, 4, 5\]",
         {"attn_mask": torch.ones(4, 5, dtype=torch.bool)}),
        (ValueError, "attn_mask has 3 batch entries where the others have 2",
         {"attn_mask": torch.ones(3, 1, 4, 6, dtype=torch.bool)}),
        (ValueError, "key has 2 heads where another tensor has 4; .* unless enable_gqa=True",
         {"key": torch.ones(2, 2, 6, 64).half()}),
        (ValueError, "key has 3 batch entries where another tensor has 2",
         {"key": torch.ones(3, 4, 6, 64).half()}),
        (ValueError, "key has 3 heads, which must divide query's 4",
         {"key": torch.ones(2, 3, 6, 64).half(), "enable_gqa": True}),
        (ValueError, "value has 4 heads where another tensor has 2; .* also with enable_gqa=True",
         {"key": torch.ones(2, 2, 6, 64).half(), "enable_gqa": True}),
        (ValueError, "key must have query's head dim 64, got 32",
         {"key": torch.ones(2, 4, 6, 32).half()}),
        (ValueError, "value must have key's length 6, got 7",
         {"value": torch.ones(2, 4, 7, 64).half()}),
        (ValueError, "query must have 2 to 5 dimensions", {"query": torch.ones(64).half()}),
        (TypeError, "query must be float16 or bfloat16, got float32",
         {"query": torch.ones(2, 4, 4, 64)}),
        (TypeError, "key must be float16 like query, got bfloat16",
         {"key": torch.ones(2, 4, 6, 64).bfloat16()}),
        (TypeError, "key must be a tensor, got None", {"key": None}),
    ],
)  # fmt: skip
def test_refusals(error, words, change):
    call = {
        "query": torch.ones(2, 4, 4, 64).half(),
        "key": torch.ones(2, 4, 6, 64).half(),
        "value": torch.ones(2, 4, 6, 64).half(),
        "attn_mask": torch.ones(4, 6, dtype=torch.bool),
    }
    sdpa(**call)
    with pytest.raises(error, match=f"scaled_dot_product_attention: {words}"):
        sdpa(**{**call, **change})


def test_an_input_that_requires_grad_is_refused():
    q = randn(1, 1, 8, 8).requires_grad_()
    with torch.enable_grad(), pytest.raises(ValueError, match="query requires grad"):
        sdpa(q, q, q)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_row_hidden_by_the_least_float_of_its_dtype(dtype):
    """float16's does not outweigh the logits; bfloat16's gives the mean of all values."""
    query, key, value = (randn(1, 2, 32, 64, dtype=dtype) for _ in range(3))
    mask = torch.full((32, 32), torch.finfo(dtype).min, dtype=dtype)
    out = sdpa(query, key, value, mask).float()
    plain = sdpa(query, key, value).float()
    mean = value.float().mean(-2, keepdim=True).expand_as(out)
    same, other = (plain, mean) if dtype == torch.float16 else (mean, plain)
    torch.testing.assert_close(out, same, rtol=0, atol=4e-3)
    assert (out - other).abs().max() > 0.1
