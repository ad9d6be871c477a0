"""The benchmarks in bench/ without a GPU: grids, arithmetic, checks, figures."""

import json
import math
import os
import pathlib
import subprocess
import sys

import attention_suite
import cells
import compile_time
import exact
import grids
import kiln
import measure
import nvml
import pytest
import report
import run
import timing
import torch
from cells import AttentionCell, GemmCell

BENCH = pathlib.Path(run.__file__).parent
CEILINGS = {"bytes_per_s": 4.27e12, "flops_per_s": dict.fromkeys(("bf16", "fp16"), 790e12)}
COUNTS = {"attention": 72, "decode": 6, "gemm": 243, "window": 12, "epilogue": 7, "norm": 39,
          "merge": 8, "append": 14, "serving": 117, "variant": 82, "quantize": 6,
          "moe": 12, "groups": 26, "pdl": 6}  # fmt: skip


def names(suite, short=False):
    return [cell.name for batch in grids.grid(suite, short) for cell in batch]


@pytest.mark.parametrize("suite", grids.GRIDS)
def test_the_grids(suite):
    full, short = names(suite), names(suite, short=True)
    assert len(full) == COUNTS[suite]
    assert len(set(full)) == len(full)
    assert short and set(short) <= set(full)
    for batch in grids.grid(suite):
        assert len({cell.inputs for cell in batch}) == 1
        assert all(cell.group and cell.label for cell in batch)


def test_attention_squares_have_16k_tokens_of_2048():
    squares = [
        b[0] for b in grids.grid("attention") if b[0].group.split()[-1] in ("full", "causal")
    ]
    assert len(squares) == 36
    assert {cell.batch * cell.len_q for cell in squares} == {16384}
    assert {cell.heads * cell.dim for cell in squares} == {2048}


def test_attention_has_the_shapes_that_nothing_was_tuned_on():
    cells = [cell for batch in grids.grid("attention") for cell in batch]
    dims = {(cell.dim, cell.value_dim) for cell in cells}
    assert dims == {(64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256)}
    chunks = {(c.len_q, c.heads, c.heads_kv) for c in cells if c.len_q != c.len_kv}
    heads = ((8, 8), (16, 16), (32, 8))
    assert chunks == {(s, *h) for s in (512, 1024, 1536, 2048, 8192) for h in heads}
    windows = {(c.batch * c.len_q, c.heads, c.heads_kv, c.dim, c.left)
               for batch in grids.grid("window") for c in batch}  # fmt: skip
    assert {(16384, 64, 8, 64, 128), (8192, 16, 16, 128, 1024)} <= windows


def test_layers_are_those_of_the_model_table():
    shapes = {(c.n, c.k) for (c,) in grids.grid("gemm") if c.group.startswith("layers")}
    table = json.loads(grids.MODELS.read_text())
    wanted = {tuple(nk) for name in grids.LAYER_MODELS for nk in table[name]["gemm"].values()}
    assert shapes == wanted | set(grids.DEEPSEEK_V3.values())


def test_a_filter_keeps_cells_by_name():
    kept = [cell.name for batch in grids.grid("attention", text="d64 CAUSAL") for cell in batch]
    assert len(kept) == 6 and all("D64 causal" in name for name in kept)
    assert grids.grid("gemm", text="no such cell") == []


MASKS = [(False, None), (True, None), (True, 0), (True, 5), (True, 300), (False, 7)]


@pytest.mark.parametrize(("causal", "left"), MASKS)
@pytest.mark.parametrize(("len_q", "len_kv"), [(40, 40), (4, 33), (33, 4), (17, 64)])
def test_touched_keys_and_tiles_against_brute_force(len_q, len_kv, causal, left):
    diagonal = torch.arange(len_q)[:, None] + len_kv - len_q
    key = torch.arange(len_kv)[None]
    mask = torch.ones(len_q, len_kv, dtype=torch.bool)
    if causal:
        mask &= key <= diagonal
    if left is not None:
        mask &= key >= diagonal - left
    assert cells.touched_pairs(len_q, len_kv, causal, left) == int(mask.sum())
    blocks = [
        mask[i : i + 8, j : j + 8].any() for i in range(0, len_q, 8) for j in range(0, len_kv, 8)
    ]
    assert cells.touched_tiles(len_q, len_kv, causal, left, tile=8) == sum(map(int, blocks))


def test_work_traffic_and_floors():
    causal = AttentionCell(4, 4096, 4096, 16, 16, 128, True)
    assert causal.flops == 4 * 4 * 16 * 128 * 4096**2 / 2
    assert causal.bytes == 4 * 4 * 4096 * 16 * 128 * 2
    decode = AttentionCell(2, 1, 100, 8, 2, 64, decode=True)
    assert decode.stream_bytes == decode.cache_bytes == 2 * 2 * 100 * 2 * 64 * 2
    assert decode.bytes == decode.cache_bytes + 2 * 2 * 8 * 64 * 2
    product = GemmCell(4096, 4096, 4096)
    floors = cells.floors_us(product, CEILINGS)
    assert floors["bytes"] == pytest.approx(23.6, rel=0.01)
    assert floors["operations"] == pytest.approx(174, rel=0.01)
    latent = AttentionCell(2, 8, 8, 4, 4, 192, dim_v=128)
    assert latent.name == "D192/128 full B2 S8 H4"
    assert latent.flops == 2 * 2 * 4 * (192 + 128) * 64
    assert latent.bytes == 2 * 2 * 2 * 8 * 4 * (192 + 128)
    assert latent.inputs != AttentionCell(2, 8, 8, 4, 4, 192).inputs
    biased = GemmCell(4096, 4096, 4096, epilogue="relu+bias")
    assert biased.bytes - product.bytes == 4096 * 2
    assert GemmCell(8, 16, 32, "tf32", "residual").bytes == 4 * (8 * 32 + 16 * 32 + 2 * 8 * 16)


def result(name, group="g", failed=None, left_out=None, **ratios):
    times = {} if failed else {"kiln": {"median_us": 2.0, "iqr_percent": 1.0}}
    figures = {"tflops": 1.0, "gb_per_s": 1.0, "times_floor": 1.5}
    return {
        "name": name, "group": group, "label": name, "times": times, "ratios": ratios,
        "left_out": left_out or {}, "failed": failed, **({} if failed else figures),
    }  # fmt: skip


def test_means_and_the_worst_cell_of_a_group():
    found = report.groups([
        result("a", cuDNN=2.0, FA2=4.0),
        result("b", cuDNN=0.5),
        result("c", "h", FA2=3.0),
        result("d", "h"),
    ])  # fmt: skip
    assert [g["group"] for g in found] == ["g", "h"]
    assert found[0]["geomean"] == pytest.approx({"cuDNN": 1.0, "FA2": 4.0, report.BEST: 1.0})
    assert found[0]["worst"] == {"name": "b", "ratio": 0.5}
    assert found[1]["cells"] == 1
    (own,) = report.groups([result("a", DeepGEMM=2.0, dense=0.9), result("b", dense=1.5)])
    wanted = {"DeepGEMM": 2.0, "dense": 1.35**0.5, report.BEST: 3**0.5}
    assert own["geomean"] == pytest.approx(wanted)
    assert report.geometric_mean([1, 8]) == pytest.approx(math.sqrt(8))
    assert report.geometric_mean([]) is None


def test_tables_name_the_path_what_failed_and_who_was_left_out():
    results = [
        result("a", cuBLAS=1.25, left_out={"Triton": "refuses"}),
        result("b", failed="differs from float32 by 3"),
    ]
    results[0]["config"] = {"path": "sm_90a"}
    text = report.cell_table("gemm", results)
    assert "x cuBLAS" in text and "1.25" in text and "failed" in text
    header, _, first, _ = text.splitlines()
    assert header.endswith("path") and first.endswith("sm_90a")
    lines = report.exceptions(results)
    assert lines == ["FAILED b: differs from float32 by 3", "left out Triton in a: refuses"]
    assert "of" in report.group_table(results).splitlines()[0]


def test_the_truth_of_attention_against_pytorch():
    q = torch.randn(2, 24, 4, 16)
    k, v = torch.randn(2, 2, 40, 2, 16)
    diagonal = torch.arange(24)[:, None] + 16
    key = torch.arange(40)[None]
    for causal, left in MASKS:
        cell = AttentionCell(2, 24, 40, 4, 2, 16, causal, left)
        mask = torch.ones(24, 40, dtype=torch.bool)
        mask &= (key <= diagonal) | torch.tensor(not causal)
        mask &= key >= diagonal - (left if left is not None else 1000)
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask, enable_gqa=True
        )
        torch.testing.assert_close(exact.attention(cell, q, k, v), expected.transpose(1, 2))


def test_the_truth_of_values_with_a_head_dim_of_their_own():
    cell = AttentionCell(1, 8, 8, 2, 2, 16, dim_v=24)
    q, k, v = torch.randn(1, 8, 2, 16), torch.randn(1, 8, 2, 16), torch.randn(1, 8, 2, 24)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v))
    )
    torch.testing.assert_close(exact.attention(cell, q, k, v), expected.transpose(1, 2))


def test_the_truth_of_attention_in_chunks_with_softcap(monkeypatch):
    cell = AttentionCell(1, 32, 32, 2, 1, 8, True, softcap=0.5)
    q, k, v = torch.randn(1, 32, 2, 8), *torch.randn(2, 1, 32, 1, 8)
    whole = exact.attention(cell, q, k, v)
    monkeypatch.setattr(exact, "SCORES", 5 * 2 * 32)
    torch.testing.assert_close(exact.attention(cell, q, k, v), whole)
    scores = torch.einsum("qhd,kd->hqk", q[0], k[0, :, 0]) * 8**-0.5
    scores = (0.5 * torch.tanh(scores / 0.5)).masked_fill(torch.ones(32, 32).triu(1) > 0, -math.inf)
    expected = torch.einsum("hqk,kd->qhd", scores.softmax(-1), v[0, :, 0])
    torch.testing.assert_close(whole[0], expected)


@pytest.mark.parametrize(("arch", "path"), [("sm_90a", "sm_90a"), ("sm_80", "portable")])
def test_a_cell_of_attention_says_which_path_kiln_took(arch, path):
    cell = AttentionCell(1, 1024, 1024, 16, 1, 192, True, dim_v=128)
    q, k, v = (torch.zeros(1, 1024, h, d).bfloat16() for h, d in ((16, 192), (1, 192), (1, 128)))
    with kiln.device(f"emulator:{arch}"):
        made = attention_suite._entry(cell, [(q, k, v)], short=True)
    assert made.config["path"] == path


def test_a_judge_names_nan_shape_and_distance():
    truth = torch.randn(32, 64)
    assert exact.judge(truth.bfloat16(), truth, "bf16")["norm"] < 0.002
    with pytest.raises(exact.Wrong, match="NaN in 1 of 2048"):
        exact.judge(truth.index_put((torch.tensor(3), torch.tensor(4)), torch.tensor(math.nan)),
                    truth, "bf16")  # fmt: skip
    with pytest.raises(exact.Wrong, match=r"shape \(31, 64\)"):
        exact.judge(truth[1:], truth, "bf16")
    with pytest.raises(exact.Wrong, match="worst row"):
        exact.judge(torch.cat([truth[:1] * 1.06, truth[1:]]), truth, "bf16")


def fake_turns(calls, seconds, sets, halfway):
    """Kiln takes 10 us, each next call 5 more."""
    for index in range(sets):
        for call in calls.values():
            call(index)
    halfway()
    return {name: [10.0 + 5 * i] * 4 for i, name in enumerate(calls)}


def entry(ours, **peers):
    cell = GemmCell(8, 4, 4, group="g", label="8x4x4")
    truth = torch.ones(8, 4)
    return measure.Entry(cell, measure.Contender(ours), peers, lambda index: truth, sets=2)


def measured(entries):
    return measure.measure(entries, 1, CEILINGS, turns=fake_turns, clock=lambda: {"sm_mhz": 1980})


def refuse():
    raise measure.Unavailable("not installed")


def test_right_peers_take_turns_and_the_others_are_left_out_by_name():
    right = measure.Contender(lambda index: torch.ones(4, 8), lambda x: x.mT)
    wrong = measure.Contender(lambda index: torch.ones(8, 4) * 2)
    crash = measure.Contender(lambda index: 1 / 0)
    peers = {"cuBLAS": lambda: right, "Triton": lambda: wrong, "A": refuse, "B": lambda: crash}
    (found,) = measured([entry(lambda index: torch.ones(8, 4), **peers)])
    assert found["failed"] is None
    assert found["ratios"] == {"cuBLAS": 1.5}
    assert found["left_out"]["A"] == "not installed"
    assert found["left_out"]["B"] == "ZeroDivisionError: division by zero"
    assert "differs from float32" in found["left_out"]["Triton"]
    assert found["times"]["kiln"]["median_us"] == 10 and found["clocks"] == {"sm_mhz": 1980}
    assert found["times_floor"] == pytest.approx(10 / found["floors_us"]["bytes"])


def test_a_wrong_result_of_ours_on_any_input_set_fails_the_cell():
    def second_is_wrong(index):
        return torch.full((8, 4), math.nan) if index == 1 else torch.ones(8, 4)

    found = measured([entry(second_is_wrong), entry(lambda index: torch.ones(8, 4))])
    assert "NaN" in found[0]["failed"] and found[0]["times"] == {}
    assert found[1]["failed"] is None and found[1]["times"]
    assert "out of memory" in measure.failure(GemmCell(1, 1, 1), CEILINGS,
                                              MemoryError("out of memory"))["failed"]  # fmt: skip


def test_a_result_that_changes_while_it_is_timed_fails_the_cell():
    out, calls = torch.ones(8, 4), []

    def racy(index):
        calls.append(index)
        out[0, 0] = 1 if len(calls) <= 2 else 1.001
        return out

    made = entry(racy)
    for view in (made.ours.view, torch.clone):  # what is looked at may be a copy
        calls.clear()
        made.ours.view = view
        (found,) = measured([made])
        assert "changed while" in found["failed"]


def test_median_and_spread():
    figures = timing.summary([4.0, 1.0, 3.0, 2.0, 5.0])
    assert figures["median_us"] == 3 and figures["samples"] == 5 and figures["best_us"] == 1
    assert figures["iqr_percent"] == pytest.approx(100)
    assert timing.summary([7.0])["iqr_percent"] == 0


class FakeLibrary:
    """As the driver's, of a device that tells its clock and power, and nothing else."""

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        return 0 if uuid == b"GPU-12" else 6

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        return 0

    def nvmlDeviceGetClockInfo(self, handle, which, place):
        place._obj.value = 1980
        return 0

    def nvmlDeviceGetPowerUsage(self, handle, place):
        place._obj.value = 512_300
        return 0

    def nvmlDeviceGetTemperature(self, handle, which, place):
        return 3

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, place):
        place._obj.value = 0x4 | 0x40
        return 0


def test_clocks_and_their_absence(monkeypatch):
    sample = nvml.Nvml("12", FakeLibrary()).sample()
    assert sample.pop("power_w") == pytest.approx(512.3)
    assert sample == {"sm_mhz": 1980, "throttled_by": ["power cap", "thermal, hardware"]}
    assert nvml.Nvml("12", FakeLibrary()).limits() is None
    monkeypatch.setattr(nvml, "open_library", lambda: None)
    absent = nvml.Nvml()
    assert absent.sample() is absent.limits() is absent.driver() is None


def bench_run(*arguments):
    """bench/run.py where PyTorch sees no GPU."""
    return subprocess.run(
        [sys.executable, BENCH / "run.py", *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_without_a_gpu_one_sentence_and_exit_4():
    done = bench_run("--suite", "all", "--short")
    assert done.returncode == run.ENVIRONMENT == 4
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert "GPU" in done.stderr and "--suite compile" in done.stderr
    assert run.lacking(["compile"]) is None


def test_each_spec_whose_compile_is_timed_names_one_kernel():
    for name, spec in compile_time.SPECS.items():
        report = kiln.prewarm(spec, compile_time.ARCH, check=True)
        assert report["total"] == 1, name


def test_usage_errors():
    assert bench_run("--suite", "nothing").returncode == run.USAGE
    done = bench_run("--suite", "gemm", "--filter", "no such cell")
    assert done.returncode == run.USAGE and "no such cell" in done.stderr


def document_of(suite):
    """What bench/run.py would write, with made-up times for every cell of the full grid."""
    results = []
    for i, cell in enumerate(cell for batch in grids.grid(suite) for cell in batch):
        floors = cells.floors_us(cell, {**CEILINGS, "flops_per_s": {cell.dtype: 790e12}})
        base = max(floors.values()) * 1.3
        times = {"kiln": base, "Triton": base * (1.1 + 0.01 * i), "cuBLAS": base * 0.9}
        found = result(cell.name, cell.group, cuBLAS=0.9, Triton=1.1 + 0.01 * i)
        found.update(label=cell.label, flops=cell.flops, bytes=cell.bytes)
        found["times"] = {name: {"median_us": t} for name, t in times.items()}
        results.append(found)
    return {"suite": suite, "machine": "a GPU", "ceilings": CEILINGS, "cells": results}


def test_figures_are_made_from_the_files(tmp_path):
    pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: `make plots` installs it"
    )
    import plots

    paths = [report.save(tmp_path, suite, document_of(suite)) for suite in ("gemm", "attention")]
    paths.append(report.save(tmp_path, "overhead", {"host": {}}))
    assert plots.main([*map(str, paths), "--out", str(tmp_path / "figures")]) == 0
    figures = {path.name: path for path in (tmp_path / "figures").iterdir()}
    wanted = {"gemm_ratios.png", "gemm_layers.png", "attention_ratios.png", "roofline.png"}
    assert set(figures) == wanted
    sizes = {name: path.stat().st_size for name, path in figures.items()}
    assert all(5_000 < size < 400_000 for size in sizes.values()), sizes


def test_no_cells_no_figures(tmp_path, capsys):
    import plots

    path = report.save(tmp_path, "compile", {"compiles": {}})
    assert plots.main([str(path), "--out", str(tmp_path)]) == run.USAGE
    assert "has cells" in capsys.readouterr().err
