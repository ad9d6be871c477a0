"""Routing, sorting by experts and adding up: scorings, groups, ties, counts, dtypes and strides."""

import math

import kiln
import moe_case
import pytest
import torch
from grid import arch, sized
from kiln import jit
from storage import DEVICE, DTYPES, filled, place, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

TOKENS = sized(small=9, full=3000)


def check_route(logits, **words):
    top_k, tokens = words["top_k"], logits.shape[0]
    weights = place("odd", [tokens, top_k], torch.float32)
    experts = torch.full((tokens, 2 * top_k), -7, dtype=torch.int32, device=DEVICE)
    made = jit.moe_route(logits, **words, weights=weights.view, experts=experts[:, ::2])
    assert made[0] is weights.view
    truth, expected = moe_case.route(logits, **words)
    assert torch.equal(made[1], expected), (made[1], expected)
    torch.testing.assert_close(weights.view, truth, rtol=4e-6, atol=1e-9, equal_nan=True)
    weights.check_untouched("weights")
    assert (experts[:, 1::2] == -7).all()


@pytest.mark.parametrize("experts", [1, 8, 60, 128, 256, 384, 512])
@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_scorings(experts, scoring):
    logits = randn([TOKENS, experts], torch.float32, experts, 2.0)
    for top_k in {1, min(experts, 8)}:
        check_route(logits, top_k=top_k, scoring=scoring)
    check_route(logits, top_k=min(experts, 32), scoring=scoring, renormalize=False, scale=2.5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_logits_and_bias(dtype):
    logits = randn([TOKENS, 64], torch.float32, 1, 2.0)
    logits = filled("odd", (logits * 16).round().div(16).to(DTYPES[dtype]))
    check_route(logits, top_k=4)
    bias = randn([128], DTYPES[dtype], 2)[::2]
    check_route(logits, top_k=4, scoring="sigmoid", bias=bias)


@pytest.mark.parametrize("groups,top_groups", [(8, 4), (8, 8), (4, 1), (32, 3), (16, 2), (3, 2)])
@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_groups(groups, top_groups, scoring):
    # Groups of one expert, and of a number that no power of two divides.
    size = {16: 16, 3: 81}.get(groups, 256)
    logits = randn([TOKENS, size], torch.float32, groups)
    bias = randn([logits.shape[1]], torch.float32, 3, 0.5)
    words = dict(groups=groups, top_groups=top_groups, scoring=scoring)
    top_k = min(8, logits.shape[1] // groups * top_groups)
    check_route(logits, top_k=top_k, **words)
    check_route(logits, top_k=top_k, bias=bias, scale=2.5, **words)


def test_ties_go_to_the_lower_number():
    logits = torch.zeros(3, 96, device=DEVICE)
    logits[1, 40:] = 1.0
    logits[2, ::2] = -0.0
    _, experts = jit.moe_route(logits, top_k=4)
    assert experts.tolist() == [[0, 1, 2, 3], [40, 41, 42, 43], [0, 1, 2, 3]]
    _, experts = jit.moe_route(logits, top_k=4, scoring="sigmoid", groups=3, top_groups=1)
    assert experts.tolist() == [[0, 1, 2, 3], [40, 41, 42, 43], [0, 1, 2, 3]]


@pytest.mark.parametrize("experts", [200, 384])
def test_ties_of_more_experts_than_lanes(experts):
    logits = torch.zeros(4, experts, device=DEVICE)
    logits[1, 150:] = 1.0  # more than a warp has lanes
    logits[2, 150:170] = 1.0  # fewer
    logits[3, 33::32] = 1.0  # of one lane
    for scoring in ("softmax", "sigmoid"):
        _, chosen = jit.moe_route(logits, top_k=4, scoring=scoring)
        assert chosen[:3].tolist() == [[0, 1, 2, 3], [150, 151, 152, 153], [150, 151, 152, 153]]
        assert chosen[3].tolist() == [33, 65, 97, 129]


def test_peaked_logits():
    """Logits that are far apart, whose softmax is 1 and zeros."""
    logits = torch.full((4, 128), -1e4, device=DEVICE)
    for token, best in enumerate([0, 31, 32, 127]):
        logits[token, best] = 1e4
    weights, experts = jit.moe_route(logits, top_k=2)
    assert experts[:, 0].tolist() == [0, 31, 32, 127] and (weights[:, 0] == 1).all()
    assert (weights[:, 1] == 0).all()
    weights, _ = jit.moe_route(torch.full((1, 8), -200.0, device=DEVICE), top_k=2,
                               scoring="sigmoid")  # fmt: skip
    assert (weights == 0).all()


def test_what_is_not_a_number():
    logits = randn([4, 40], torch.float32, 1)
    logits[0, 7], logits[1, 9], logits[2] = math.nan, math.inf, -math.inf
    logits[3, :38] = -math.inf
    weights, experts = jit.moe_route(logits, top_k=3)
    assert torch.isnan(weights[:3]).all() and experts[0, 0] == 7 and experts[1, 0] == 9
    assert experts[2].tolist() == [0, 1, 2] and experts[3, 2] == 0 and weights[3, 2] == 0
    weights, experts = jit.moe_route(logits, top_k=3, scoring="sigmoid", renormalize=False)
    assert experts[0, 0] == 7 and int(torch.isnan(weights).sum()) == 1


def check_permute(x, experts, num_experts, storage="plain"):
    pairs = experts.numel()
    dtype = x.dtype
    if dtype.is_floating_point:
        placed = place(storage, [pairs, x.shape[1]], dtype)
        out = placed.view
    else:
        placed, out = None, torch.full((pairs, x.shape[1]), 77, dtype=dtype, device=DEVICE)
    made = jit.moe_permute(x, experts, num_experts=num_experts, out=out)
    rows, ends, inverse = moe_case.permute(x, experts, num_experts)
    count = rows.shape[0]
    assert made[0] is out and torch.equal(made[1], ends) and torch.equal(made[2], inverse)
    assert torch.equal(out[:count].view(torch.uint8), rows.contiguous().view(torch.uint8))
    if placed is not None:
        assert torch.isnan(out[count:].float()).all(), "rows behind the last were written"
        placed.check_untouched("out")


def numbers(tokens, top_k, low, high, seed, dtype=torch.int32):
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    shape = (tokens, top_k)
    made = torch.randint(low, high, shape, generator=generator, device=DEVICE)
    return made.to(dtype)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    "tokens,top_k,num_experts,low,high",
    [(1, 1, 1, 0, 1), (5, 2, 8, 0, 8), (130, 8, 40, -3, 45), (7, 64, 512, 0, 512),
     (70, 3, 5, 4, 5), (9, 4, 16, -1, 0)],
)  # fmt: skip
def test_sorting(dtype, tokens, top_k, num_experts, low, high):
    x = randn([tokens, 40], torch.bfloat16, 1)
    check_permute(x, numbers(tokens, top_k, low, high, 2, dtype), num_experts)


def test_numbers_beyond_32_bits_are_no_experts():
    experts = torch.tensor([[2**32 + 1, 0], [1, 1 - 2**32]], device=DEVICE)
    check_permute(randn([2, 8], torch.float32, 1), experts, 4)


def test_passes_of_several_warps():
    """More pairs in a CTA than it has threads."""
    tokens = sized(small=2200, full=40000)
    check_permute(randn([tokens, 1], torch.float32, 1), numbers(tokens, 64, -1, 7, 4), 7)


@pytest.mark.parametrize("tokens", [2100, 4099])
def test_many_pairs_are_counted_first(tokens):
    """Of two launches; CTAs have several passes each, or a pass in part."""
    experts = numbers(tokens, 8, -1, 32, 3)
    explained = kiln.explain("moe_permute", torch.zeros(tokens, 8, device=DEVICE), experts,
                             num_experts=32)  # fmt: skip
    assert len(explained["launches"]) == 2
    check_permute(randn([tokens, 8], torch.float32, 1), experts, 32)


@pytest.mark.parametrize("storage", ["guarded", "offset", "odd"])
def test_strides_of_rows(storage):
    for dtype, columns in [(torch.bfloat16, 64), (torch.float32, 33), (torch.float16, 2050)]:
        x = filled(storage, randn([6, columns], dtype, 1))
        experts = numbers(12, 3, 0, 5, 2)[::2]
        check_permute(x, experts, 5, storage="guarded" if storage == "odd" else storage)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.int64])
@pytest.mark.parametrize("columns", [1, 6, 48])
def test_rows_of_any_dtype(dtype, columns):
    x = randn([6, columns], torch.float32, 1, 20.0).to(dtype)
    check_permute(x, numbers(6, 2, 0, 4, 2), 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [64, 300, 33])
def test_adding_up(dtype, columns):
    y = filled("odd", randn([40, columns], DTYPES[dtype], 1))
    inverse = numbers(TOKENS, 6, -2, 42, 2)
    weights = randn([TOKENS, 12], torch.float32, 3)[:, ::2]
    calls = [(weights, None)]
    if columns == 64:
        calls.append((weights if dtype == "f16" else None, torch.float32))
    for given, out_dtype in calls:
        truth = moe_case.unpermute(y, inverse, given)
        out = jit.moe_unpermute(y, inverse, given, out_dtype=out_dtype)
        allowed = 2e-6 if out.dtype == torch.float32 else torch.finfo(out.dtype).eps
        scale = truth.abs().amax(-1, keepdim=True).clamp_min(1e-30)
        assert ((out.double() - truth).abs() / scale).max() <= allowed


def test_rows_that_count_for_nothing():
    y = torch.full((3, 64), math.nan, device=DEVICE)
    y[1] = 2.0
    inverse = torch.tensor([[1, -1], [-1, -1], [3, 1]], dtype=torch.int32, device=DEVICE)
    weights = torch.tensor([[3.0, math.nan], [1.0, 1.0], [math.inf, 0.5]], device=DEVICE)
    out = place("guarded", [3, 64], torch.float32)
    jit.moe_unpermute(y, inverse, weights, out=out.view)
    assert out.view[:, 0].tolist() == [6.0, 0.0, 1.0]
    out.check_untouched("out")


def test_there_and_back():
    x = randn([TOKENS, 128], torch.float32, 1)
    weights, experts = jit.moe_route(randn([TOKENS, 16], torch.float32, 2), top_k=4)
    rows, offsets, inverse = jit.moe_permute(x, experts, num_experts=16)
    assert offsets[-1] == 4 * TOKENS
    back = jit.moe_unpermute(rows, inverse, weights)
    torch.testing.assert_close(back, x, rtol=1e-5, atol=1e-6)
    assert torch.equal(jit.moe_unpermute(rows, inverse, weights), back)


def test_nothing_to_do():
    none = torch.zeros(0, 8, device=DEVICE)
    weights, experts = jit.moe_route(none, top_k=2)
    assert weights.shape == experts.shape == (0, 2)
    out, offsets, inverse = jit.moe_permute(none, experts, num_experts=8)
    assert out.shape == (0, 8) and (offsets == 0).all() and inverse.shape == (0, 2)
    assert jit.moe_unpermute(out, inverse, weights).shape == (0, 8)


def test_no_count_compiles_after_prewarming():
    specs = [{"op": "moe_route"}, {"op": "moe_permute"}, {"op": "moe_unpermute"}]
    report = kiln.prewarm(specs, arch())
    assert report["failed"] == [] and report["total"] == 7
    sizes = [(1, 1, 1), (3, 8, 256), (4, 4, 65), (2100, 8, 300), (5, 6, 512)]
    with kiln.no_compile():
        for tokens, top_k, experts in sizes:
            logits = randn([tokens, experts], torch.float32, 1)
            weights, chosen = jit.moe_route(logits, top_k=top_k)
            x = torch.ones(tokens, 8, dtype=torch.bfloat16, device=DEVICE)
            rows, _, inverse = jit.moe_permute(x, chosen, num_experts=experts)
            jit.moe_unpermute(rows, inverse, weights)


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


def integers(*shape):
    return zeros(*shape, dtype=torch.int32)


@pytest.mark.parametrize(
    "error,text,call",
    [
        (TypeError, "moe_route: logits must be float16, bfloat16 or float32, got int32",
         lambda: jit.moe_route(integers(2, 8), top_k=2)),
        (ValueError, "moe_route: logits must have 2 dimensions [tokens, experts], got [8]",
         lambda: jit.moe_route(zeros(8), top_k=2)),
        (ValueError, "moe_route: logits must have 1 to 512 experts and at most 2^31 - 1 tokens",
         lambda: jit.moe_route(zeros(2, 513), top_k=2)),
        (ValueError, "moe_route: top_k must be 1 to 32, got 0",
         lambda: jit.moe_route(zeros(2, 8), top_k=0)),
        (ValueError, "moe_route: top_k must be 1 to 8, the experts to choose from and at most 32",
         lambda: jit.moe_route(zeros(2, 8), top_k=9)),
        (ValueError, "moe_route: top_k must be 1 to 4, the experts to choose from",
         lambda: jit.moe_route(zeros(2, 8), top_k=5, groups=4, top_groups=2)),
        (ValueError, "moe_route: top_k is 2, and so must be the last dimension of weights and",
         lambda: jit.moe_route(zeros(2, 8), top_k=2, weights=zeros(2, 3))),
        (ValueError, "moe_route: groups must divide the 8 experts and be at most 32, got 3",
         lambda: jit.moe_route(zeros(2, 8), top_k=2, groups=3)),
        (ValueError, "moe_route: top_groups must be 1 to the number of groups, 2, got 3",
         lambda: jit.moe_route(zeros(2, 8), top_k=2, groups=2, top_groups=3)),
        (ValueError, 'moe_route: scoring must be "softmax" or "sigmoid", got "relu"',
         lambda: jit.moe_route(zeros(2, 8), top_k=2, scoring="relu")),
        (ValueError, "moe_route: scale must be a finite number, got",
         lambda: jit.moe_route(zeros(2, 8), top_k=2, scale=math.inf)),
        (ValueError, "moe_route: bias must have shape [8], got [7]",
         lambda: jit.moe_route(zeros(2, 8), top_k=2, bias=zeros(7))),
        (TypeError, "moe_permute: experts must be int32 or int64, got float32",
         lambda: jit.moe_permute(zeros(2, 8), zeros(2, 2), num_experts=4)),
        (ValueError, "moe_permute: experts must have 1 to 64 experts for each token and at most",
         lambda: jit.moe_permute(zeros(2, 8), integers(2, 65), num_experts=4)),
        (ValueError, "moe_permute: num_experts must be 1 to 512, got 513",
         lambda: jit.moe_permute(zeros(2, 8), integers(2, 2), num_experts=513)),
        (ValueError, "moe_permute: num_experts is 4, and so must be the length of offsets",
         lambda: jit.moe_permute(zeros(2, 8), integers(2, 2), num_experts=4, offsets=integers(3))),
        (ValueError, "moe_permute: out must have shape [4, 8], got [3, 8]",
         lambda: jit.moe_permute(zeros(2, 8), integers(2, 2), num_experts=4, out=zeros(3, 8))),
        (ValueError, "moe_permute: x must have a row for each of the 3 tokens of experts, got [2, ",
         lambda: jit.moe_permute(zeros(2, 8), integers(3, 2), num_experts=4, out=zeros(6, 8))),
        (ValueError, "moe_permute: x must have a row for each of the 3 tokens of experts, got [2, ",
         lambda: jit.moe_permute(zeros(2, 8), integers(3, 2), num_experts=4)),
        (TypeError, "moe_unpermute: y must be float16, bfloat16 or float32, got int32",
         lambda: jit.moe_unpermute(integers(4, 8), integers(2, 2))),
        (ValueError, "moe_unpermute: weights must have shape [2, 2], got [2, 3]",
         lambda: jit.moe_unpermute(zeros(4, 8), integers(2, 2), zeros(2, 3))),
        (ValueError, "moe_unpermute: out must have shape [2, 8], got [3, 8]",
         lambda: jit.moe_unpermute(zeros(4, 8), integers(2, 2), out=zeros(3, 8))),
        (ValueError, "moe_unpermute: y must have 2 dimensions [rows, columns], got [8]",
         lambda: jit.moe_unpermute(zeros(8), integers(2, 2))),
    ],
)  # fmt: skip
def test_what_is_refused(error, text, call):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value), caught.value


def test_overlaps_that_are_refused():
    x = zeros(4, 8)
    with pytest.raises(ValueError, match="out shares memory with x"):
        jit.moe_permute(x[:2], integers(2, 2), num_experts=2, out=x)
    with pytest.raises(ValueError, match="out shares memory with y"):
        jit.moe_unpermute(x, integers(2, 2), out=x[:2])


@pytest.mark.emulated
@pytest.mark.parametrize("name", ["sm_80"])
def test_other_architectures(device, name):
    with device.on(name):
        check_route(randn([5, 40], torch.float32, 1), top_k=3)
        check_permute(randn([5, 40], torch.bfloat16, 1), numbers(5, 2, 0, 4, 2), 4)


@pytest.mark.cuda
@pytest.mark.parametrize("tokens", [40, 2100, 9000])
def test_a_graph_replays_with_other_counts(tokens):
    """Of one launch and of two; each replay has experts of its own."""
    logits = randn([tokens, 64], torch.float32, 1)
    x = randn([tokens, 256], torch.bfloat16, 2)

    def layer():
        weights, experts = jit.moe_route(logits, top_k=8)
        rows, offsets, inverse = jit.moe_permute(x, experts, num_experts=64)
        return experts, rows, offsets, inverse, jit.moe_unpermute(rows, inverse, weights)

    layer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        experts, rows, offsets, inverse, out = layer()
    for seed in (10, 20):
        logits.copy_(randn([tokens, 64], torch.float32, seed))
        logits[:, :seed] += 3.0
        rows.fill_(math.nan)
        graph.replay()
        expected = moe_case.permute(x, experts, 64)
        assert torch.equal(rows, expected[0])
        assert torch.equal(offsets, expected[1]) and torch.equal(inverse, expected[2])
        torch.testing.assert_close(out.float(), x.float(), rtol=2e-2, atol=1e-2)
