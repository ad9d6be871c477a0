"""The reference and gates of tests/kernels, on the CPU: equal to PyTorch, and that they bite."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compare import check_lse, check_rows  # noqa: E402
from reference import attention, gemm, gemm_baseline, to_tf32  # noqa: E402


def qkv(len_q=40, len_kv=40, heads=4, heads_kv=2, dim=32, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = [(len_q, heads), (len_kv, heads_kv), (len_kv, heads_kv)]
    return [
        torch.randn([2, length, h, dim], generator=generator, dtype=torch.float64).to(dtype)
        for length, h in shapes
    ]


def sdpa(q, k, v, **options):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
    return out.transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3, -0.1])
def test_attention_equals_pytorchs(causal, scale):
    q, k, v = qkv()
    out, _ = attention(q, k, v, precision=torch.float64, causal=causal, scale=scale)
    if scale is not None and scale < 0:  # PyTorch's own is NaN for a negative scale with a mask
        q, scale = -q, -scale
    torch.testing.assert_close(out, sdpa(q, k, v, is_causal=causal, scale=scale))


def test_causal_is_aligned_to_the_bottom_right():
    q, k, v = qkv(len_q=5, len_kv=40)
    mask = torch.ones(5, 40, dtype=torch.bool).tril(35)
    out, lse = attention(q, k, v, precision=torch.float64, causal=True)
    torch.testing.assert_close(out, sdpa(q, k, v, attn_mask=mask))
    last, last_lse = attention(q[:, 4:], k, v, precision=torch.float64)
    torch.testing.assert_close(out[:, 4:], last)
    torch.testing.assert_close(lse[..., 4:], last_lse)


def test_window_softcap_and_alibi_by_their_formulas():
    q, k, v = qkv()
    i, j = torch.arange(40)[:, None], torch.arange(40)[None]
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4])
    scores = torch.einsum("bihd,bjhd->bhij", q, k.repeat_interleave(2, 2)) / math.sqrt(32)
    scores = 3 * torch.tanh(scores / 3) - slopes[:, None, None].double() * (i - j).abs()
    scores = scores.masked_fill((j < i - 7) | (j > i + 2), -math.inf)
    expected = torch.softmax(scores, -1) @ v.repeat_interleave(2, 2).transpose(1, 2)
    out, lse = attention(
        q, k, v, precision=torch.float64, window=(7, 2), softcap=3.0, alibi_slopes=slopes
    )
    torch.testing.assert_close(out, expected.transpose(1, 2))
    torch.testing.assert_close(lse, scores.logsumexp(-1))


def test_a_sink_is_one_more_logit_whose_value_is_zero():
    q, k, v = qkv()
    sinks = torch.tensor([0.5, -math.inf, math.inf, 3.0])
    out, lse = attention(q, k, v, precision=torch.float64, sinks=sinks)
    plain, plain_lse = attention(q, k, v, precision=torch.float64)
    share = torch.sigmoid(plain_lse - sinks[:, None].double()).transpose(1, 2)[..., None]
    torch.testing.assert_close(out, plain * share)
    torch.testing.assert_close(lse, plain_lse)
    assert (out[:, :, 2] == 0).all()


def test_rows_without_keys_are_zero_and_minus_infinity():
    q, k, v = qkv(len_q=50, len_kv=40)
    out, lse = attention(q, k, v, precision=torch.float64, causal=True, sinks=torch.zeros(4))
    assert (out[:, :10] == 0).all() and (lse[..., :10] == -math.inf).all()
    assert torch.isfinite(lse[..., 10:]).all()


def test_layouts_agree():
    q, k, v = qkv(len_q=7)
    out, lse = attention(q, k, v, precision=torch.float64)
    swapped = [x.transpose(1, 2) for x in (q, k, v)]
    other, other_lse = attention(*swapped, precision=torch.float64, layout="bhsd")
    assert torch.equal(other.transpose(1, 2), out) and torch.equal(lse, other_lse)


def test_gemm_equals_pytorchs():
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(2, 30, 30, generator=generator) for _ in range(2))
    bias, residual = torch.randn(30, generator=generator), torch.randn(2, 30, 30)
    out = gemm(a, b, activation="silu", bias=bias, residual=residual, alpha=0.5)
    expected = torch.nn.functional.silu(0.5 * (a.double() @ b.double()) + bias.double())
    torch.testing.assert_close(out, expected + residual.double())


def test_tf32_keeps_ten_bits():
    x = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -3.0, 0.0])
    assert to_tf32(x).tolist() == [1.0, 1 + 2**-10, 1 + 2**-10, 1.0, -3.0, 0.0]


@pytest.fixture
def judged():
    """What a good bf16 kernel gives, the truth, and the textbook in bf16."""
    q, k, v = qkv(len_q=200, len_kv=200, dtype=torch.bfloat16)
    truth, lse = attention(q, k, v, precision=torch.float64)
    textbook, _ = attention(q, k, v, precision=torch.bfloat16)
    return truth.to(torch.bfloat16), truth, textbook, lse


def test_the_gate_passes_what_is_rounded_once(judged):
    good, truth, textbook, _ = judged
    check_rows(good, truth, textbook, what="good")


@pytest.mark.parametrize("fault", ["nan", "zero", "neighbour", "scaled"])
def test_the_gate_catches_one_wrong_row(judged, fault):
    good, truth, textbook, _ = judged
    row = good[1, 77, 2]
    if fault == "nan":
        row[3] = math.nan
    elif fault == "zero":
        row[3] = 0
    elif fault == "neighbour":
        row.copy_(good[1, 78, 2])
    else:
        row.mul_(1.1)
    with pytest.raises(AssertionError, match=r"1 of 1600 rows are wrong.*\(1, 77, 2\)"):
        check_rows(good, truth, textbook, what=fault)


def test_the_gate_catches_a_lost_key_in_the_lse_and_in_peaked_rows(judged):
    q, k, v = qkv(len_q=100, len_kv=100)
    k[:, 50] *= 8
    truth, lse = attention(q, k, v, precision=torch.float64)
    textbook, _ = attention(q, k, v, precision=torch.bfloat16)
    lost, lost_lse = attention(
        q, k, v, precision=torch.float64, mask=lambda at: at.kv.expand_as(at.q + at.kv) != 50
    )
    with pytest.raises(AssertionError):
        check_rows(lost.to(torch.bfloat16), truth, textbook, what="lost key")
    with pytest.raises(AssertionError):
        check_lse(lost_lse.float(), lse, what="lost key")


def test_a_row_of_zeros_must_be_zero(judged):
    _, truth, textbook, _ = judged
    zeros = torch.zeros_like(truth)
    almost = torch.zeros_like(textbook)
    almost[0, 0, 0, 0] = 1e-6
    check_rows(torch.zeros_like(textbook), zeros, torch.zeros_like(textbook), what="zeros")
    with pytest.raises(AssertionError):
        check_rows(almost, zeros, torch.zeros_like(textbook), what="almost zeros")


def test_an_overflowing_textbook_excuses_no_more_than_the_cap(judged):
    good, truth, textbook, _ = judged
    check_rows(good, truth, torch.full_like(textbook, math.nan), what="NaN baseline")
    with pytest.raises(AssertionError):
        check_rows(good * 1.5, truth, torch.full_like(textbook, math.nan), what="NaN baseline")


def test_an_empty_row_of_the_lse_is_minus_infinity(judged):
    *_, lse = judged
    lse = lse.clone()
    lse[0, 0, 0] = -math.inf
    check_lse(lse.float(), lse, what="equal")
    for value in (0.0, math.inf, math.nan, -1e30):
        wrong = lse.float()
        wrong[0, 0, 0] = value
        with pytest.raises(AssertionError, match=r"\(0, 0, 0\)"):
            check_lse(wrong, lse, what="wrong")


def test_what_is_excused_for_a_row_is_allowed_there_and_no_more(judged):
    good, truth, textbook, lse = judged
    row_off, lse_off = torch.zeros(truth.shape[:-1]), torch.zeros(lse.shape)
    row_off[1, 77, 2], lse_off[1, 2, 77] = 0.5, 0.01
    good, off_lse = good.clone(), lse.float()
    good[1, 77, 2, 3] += 0.4
    off_lse[1, 2, 77] += 0.009
    check_rows(good, truth, textbook, what="excused", excused=row_off)
    check_lse(off_lse, lse, what="excused", excused=lse_off)
    for neighbours in (row_off.roll(1, 1), row_off * 0.1):
        with pytest.raises(AssertionError, match=r"1 of 1600 rows are wrong"):
            check_rows(good, truth, textbook, what="not excused", excused=neighbours)
    with pytest.raises(AssertionError, match="1 of 1600 lse values are wrong"):
        check_lse(off_lse, lse, what="not excused", excused=lse_off * 0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_gemm_gate_passes_the_baseline_and_catches_a_lost_column(dtype):
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(60, 128, generator=generator).to(dtype)
    b = torch.randn(128, 40, generator=generator).to(dtype)
    truth, baseline = gemm(a, b), gemm_baseline(a, b, out_dtype=dtype)
    check_rows(baseline, truth, baseline, what="baseline")
    lost = gemm_baseline(a[:, :127], b[:127], out_dtype=dtype)
    with pytest.raises(AssertionError):
        check_rows(lost, truth, baseline, what="lost column")


def test_half_sums_lose_more_than_float_sums():
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(64, 512, generator=generator).half() for _ in range(2))
    truth = gemm(a, b.mT)
    errors = [
        (gemm_baseline(a, b.mT, out_dtype=torch.float16, accumulator=kind) - truth).abs().mean()
        for kind in ("float32", "float16")
    ]
    assert errors[0] < errors[1] < 20 * errors[0]
