"""CUDA graphs: capture with a hit, with a miss, after preload; streams and devices."""

import gc

import kiln
import pytest
import torch
from attention_case import AttentionCase, judge
from fresh_variant import fresh_variant
from gemm_case import GemmCase
from kiln import jit
from storage import DEVICE, randn


@pytest.mark.parametrize("given", [True, False], ids=["out=", "fresh output"])
def test_a_hit_is_captured_and_replays_with_changed_inputs(given):
    case = AttentionCase(len_q=100, len_kv=100, heads=4, heads_kv=2, causal=True)
    q, k, v = case.inputs()
    jit.flash_attention(q, k, v, causal=True)
    torch.cuda.synchronize()
    out = torch.empty_like(q) if given else None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result, lse = jit.flash_attention(q, k, v, causal=True, out=out, return_lse=True)
    for seed in (10, 20):
        for x, y in zip((q, k, v), case.inputs(seed)):
            x.copy_(y)
        result.fill_(float("nan"))
        graph.replay()
        judge("replay", q, k, v, result, lse, causal=True)


@pytest.mark.parametrize("shape", [dict(len_q=1, heads=8), dict(len_q=20, heads=4)], ids=str)
def test_a_split_call_is_captured_and_replays_with_changed_inputs(shape):
    """Every replay has the same workspace and the same mark of its launch in it."""
    case = AttentionCase(len_kv=3001, heads_kv=2, batch=2, causal=True, **shape)
    assert case.explain()["splits"] > 1
    q, k, v = case.inputs()
    jit.flash_attention(q, k, v, causal=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first, first_lse = jit.flash_attention(q, k, v, causal=True, return_lse=True)
        second, second_lse = jit.flash_attention(first, k, v, causal=True, return_lse=True)
    for seed in range(10, 30):
        for x, y in zip((q, k, v), case.inputs(seed)):
            x.copy_(y)
        for result in (first, first_lse, second, second_lse):
            result.fill_(float("nan"))
        graph.replay()
        judge(f"replay {seed}", q, k, v, first, first_lse, causal=True)
        judge(f"replay {seed}, second call", first, k, v, second, second_lse, causal=True)


def test_gemm_is_captured():
    case = GemmCase(m=100, n=96, k=64)
    a, b = case.inputs()
    expected = jit.gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = jit.gemm(a, b)
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)


def test_ten_programmatic_gemms_in_a_graph_give_the_bits_of_ordinary_ones():
    """Of few rows and of split tiles, sm_90a and portable; replays follow one another at once."""
    shapes = [(512, 1024), (1024, 512), (64, 1024), (4096, 64), (160, 4096)] * 2
    weights = [randn([n, k], torch.bfloat16, 40 + i, k**-0.5) for i, (n, k) in enumerate(shapes)]
    x = randn([12, 1024], torch.bfloat16, 4)

    def chain(pdl, shift):
        rows = x
        for weight in weights:
            out = torch.empty(12, len(weight) + 8, device=DEVICE, dtype=torch.bfloat16)
            rows = rows[:, : weight.shape[1]]
            if rows.shape[1] < weight.shape[1]:
                rows = rows.repeat(1, -(-weight.shape[1] // rows.shape[1]))[:, : weight.shape[1]]
            rows = jit.gemm(rows, weight.t(), out=out[:, shift : shift + len(weight)], pdl=pdl)
        return rows

    for shift in (0, 1):  # 1: outputs and, of the next, inputs by elements
        graphs = []
        for pdl in (False, True, "weights"):
            chain(pdl, shift)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = chain(pdl, shift)
            graphs.append((graph, result))
        for seed in range(10, 40):
            x.copy_(randn([12, 1024], torch.bfloat16, seed))
            for graph, out in graphs:
                out.fill_(float("nan"))
                graph.replay()
                graph.replay()
            expected = graphs[0][1]
            assert all(torch.equal(out, expected) for _, out in graphs), f"shift {shift}, {seed}"


def test_a_split_gemm_is_captured_and_replays_with_changed_inputs():
    case = GemmCase(m=20, n=72, k=4608)
    assert case.explain()["splits"] > 1
    a, b = case.inputs()
    jit.gemm(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = jit.gemm(a, b)
    for seed in range(10, 30):
        for x, y in zip((a, b), case.inputs(seed)):
            x.copy_(y)
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, jit.gemm(a, b))


def test_a_miss_in_a_capture_names_preload_and_the_process_goes_on():
    variant = fresh_variant()
    q, k, v = AttentionCase().inputs()
    jit.flash_attention(q, k, v)
    torch.cuda.synchronize()
    out = torch.zeros_like(q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.add_(1)  # so that the capture is not empty
        with pytest.raises(kiln.CompileDisabled) as caught:
            jit.flash_attention(q, k, v, variant=variant(x=1.0), out=out)
    assert "preload" in str(caught.value)
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 1).all()

    kiln.preload(caught.value.spec)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        jit.flash_attention(q, k, v, variant=variant(x=1.0), out=out)
    graph.replay()
    assert torch.equal(out, jit.flash_attention(q, k, v, variant=variant(x=1.0)))


def test_no_compile_names_the_spec_to_prewarm():
    variant = fresh_variant()
    q, k, v = AttentionCase().inputs()
    with kiln.no_compile(), pytest.raises(kiln.CompileDisabled) as caught:
        jit.flash_attention(q, k, v, variant=variant(x=1.0))
    major, minor = torch.cuda.get_device_capability()
    report = kiln.prewarm([caught.value.spec], arch=f"sm_{major}{minor}")
    assert report["failed"] == [] and report["compiled"] >= 1
    with kiln.no_compile():
        jit.flash_attention(q, k, v, variant=variant(x=1.0))


def test_work_goes_to_the_current_stream():
    """The default stream is kept busy; a call on another stream must not wait for it."""
    q, k, v = AttentionCase(len_q=64, len_kv=64).inputs()
    expected = jit.flash_attention(q, k, v)
    busy = randn([8192, 8192], torch.bfloat16, 1)
    stream, done, default_done = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()
    torch.cuda.synchronize()
    for _ in range(40):
        busy @ busy
    default_done.record()
    with torch.cuda.stream(stream):
        out = jit.flash_attention(q, k, v)
        done.record()
    done.synchronize()
    assert not default_done.query(), "the call waited for the default stream"
    assert torch.equal(out, expected)


def test_a_call_is_ordered_on_its_stream():
    q, k, v = AttentionCase(len_q=64, len_kv=64).inputs()
    expected = jit.flash_attention(q, k, v)
    source = q.clone()
    q.zero_()
    torch.cuda.synchronize()
    busy = randn([8192, 8192], torch.bfloat16, 1)
    with torch.cuda.stream(torch.cuda.Stream()):
        busy @ busy
        q.copy_(source)
        out = jit.flash_attention(q, k, v)
        after = out.clone()
    torch.cuda.synchronize()
    assert torch.equal(after, expected)


def test_a_hot_call_allocates_no_device_memory():
    case = AttentionCase(len_q=512, len_kv=512, heads=8, heads_kv=8)
    q, k, v = case.inputs()
    out, lse = case.outputs()
    jit.flash_attention(q, k, v, out=out.view, lse=lse)
    torch.cuda.synchronize()
    gc.collect()  # frees what else would be freed meanwhile
    free, allocated = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    for _ in range(10):
        jit.flash_attention(q, k, v, out=out.view, lse=lse)
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] == free
    assert torch.cuda.memory_allocated() == allocated


@pytest.mark.skipif(
    DEVICE.type != "cuda" or torch.cuda.device_count() < 2, reason="needs two CUDA devices"
)
def test_every_device_gets_its_own_work_and_the_current_one_stays():
    case = AttentionCase(len_q=100, len_kv=100)
    inputs = case.inputs()
    expected = jit.flash_attention(*inputs)
    for index in range(torch.cuda.device_count()):
        q, k, v = (x.to(f"cuda:{index}") for x in inputs)
        out = jit.flash_attention(q, k, v)
        product = jit.gemm(q[0, :, 0], k[0, :, 0].mT)
        assert out.device.index == index and product.device.index == index
        assert torch.cuda.current_device() == 0
        assert torch.equal(out.cpu(), expected.cpu())
    mixed = inputs[0], inputs[1].to("cuda:1"), inputs[2]
    with pytest.raises((TypeError, ValueError), match="device"):
        jit.flash_attention(*mixed)
