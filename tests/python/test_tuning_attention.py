"""The measured table of attention's rows: its effect on calls of the emulated device, and
`kiln tune attention` as far as it goes without a GPU."""

import dataclasses
import json

import kiln
import numpy as np
import pytest
from kiln import cli, jit
from kiln.cli import attention_timing, tune_attention
from kiln.cli.attention_timing import Measured, Tile
from kiln.cli.bench_cases import AttentionCase
from kiln.cli.sizes import AttentionShape, Mask, attention_shape, masks
from test_tuning import NumpyGpu

OK, CHECK_FAILED, USAGE, COMPILE_FAILED, ENVIRONMENT = range(5)
DEVICE = {"schema": 1, "arch": "sm_90", "sm_count": 132}
NARROW, WIDE = Tile("sm_90a", 128, 64, 4), Tile("sm_90a", 192, 128, 2)
SMALL = AttentionCase(1, 100, 2, 64, 2, 100, "float16", causal=True, window=None)


class TickingGpu(NumpyGpu):
    """Its clock advances by itself, so that no call takes no time at all."""

    ordinal, out_of_memory = 0, MemoryError

    def event(self):
        self.now += 1
        return self.now


@pytest.fixture
def use(tmp_path):
    """Sets a table with these entries; the process has none afterwards."""

    def write(*entries, **fields):
        path = tmp_path / "table.json"
        path.write_text(json.dumps({**DEVICE, "entries": entries, **fields}))
        kiln.set_tuning(path)
        return path

    yield write
    kiln.set_tuning(None)


def entry(case, tile):
    return {"op": "flash_attention", **attention_timing.entry_of(case, tile)}


def explained(case):
    q, k, v, out = case.tensors(NumpyGpu())
    with kiln.device("emulator:sm_90a"):
        return kiln.explain("flash_attention", q, k, v, out=out, **case.options())


# ------------------------------------------------------------------------------------ the table


def test_a_table_changes_what_runs_and_says_so(use):
    builtin = explained(SMALL)
    assert Tile.of(builtin).path == "portable"  # so few tiles would leave multiprocessors idle
    path = use(entry(SMALL, WIDE))
    tuned = explained(SMALL)
    assert Tile.of(tuned) == WIDE
    assert tuned["why"][-1] == (
        f"tile of the tuning table {path}: the fastest measured at len_q = 100, len_kv = 100"
    )
    kiln.set_tuning(None)
    assert explained(SMALL) == builtin


def test_a_window_is_found_by_the_keys_that_a_query_sees(use):
    case = AttentionCase(1, 300, 2, 64, 2, 300, "float16", causal=True, window=63)
    use(entry(case, WIDE))
    assert Tile.of(explained(case)) == WIDE
    assert "tuning table" not in explained(dataclasses.replace(case, window=64))["why"][-1]


def test_the_result_is_the_same_with_a_table(use):
    q, k, v, out = SMALL.tensors(NumpyGpu())
    results = []
    with kiln.device("emulator:sm_90a"):
        for tile in (None, WIDE):
            if tile:
                use(entry(SMALL, tile))
            results.append(jit.flash_attention(q, k, v, out=out, causal=True).astype(np.float32))
    logits = np.einsum("bqhd,bkhd->bhqk", q.astype(np.float32), k.astype(np.float32)) / 8
    logits = np.where(np.tri(100, dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhqk,bkhd->bqhd", weights, v.astype(np.float32))
    for result in results:
        assert abs(result - expected).max() < 4e-3


def test_one_file_has_entries_of_both_operations(use):
    config = {"block_m": 128, "block_n": 256, "block_k": 64, "stages": 4, "cluster": 1}
    product = {"dtype": "float16", "out_dtype": "float16", "layout": "nt", "config": config}
    product.update({"m": 64, "n": 256, "k": 512})  # without an op, as earlier versions wrote it
    use(product, entry(SMALL, WIDE))
    a, w = np.zeros((64, 512), np.float16), np.zeros((256, 512), np.float16)
    with kiln.device("emulator:sm_90a"):
        assert kiln.explain("gemm", a, w, trans_b=True)["config"] == "128x256x64x4"
    assert Tile.of(explained(SMALL)) == WIDE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"op": "layer_norm"}, "field 'op' must be flash_attention or gemm, got 'layer_norm'"),
        ({"dtype": "float32"}, "field 'dtype' must be float16 or bfloat16, got 'float32'"),
        (
            {"mask": "full"},
            "field 'mask' must be none, causal, window, causal_each or tree, got 'full'",
        ),
        ({"mask": "window"}, "field 'keys' is missing"),
        ({"heads": 0}, "field 'heads' must be a whole number from 1 on, got 0"),
        ({"config": {}}, "field 'block_q' is missing"),
    ],
)
def test_a_malformed_entry_is_an_error_that_changes_nothing(use, change, text):
    path = use(entry(SMALL, WIDE))
    with pytest.raises(ValueError, match="tuning table") as error:
        use({**entry(SMALL, WIDE), **change})
    assert str(path) in str(error.value) and text in str(error.value)
    assert kiln.set_tuning(None) == str(path)


# ------------------------------------------------------------------------------------- measuring


def test_measuring_on_the_emulated_device(monkeypatch):
    everything = attention_timing.rows_of

    def two_rows(spec, arch):
        return [
            tile for tile in everything(spec, arch) if tile in (NARROW, WIDE) or tile.splits > 1
        ]

    monkeypatch.setattr(attention_timing, "rows_of", two_rows)
    with kiln.device("emulator:sm_90a"):
        measured = attention_timing.measure(SMALL, TickingGpu(), 0, DEVICE)
    # The keys are too few to split, and the tiles too few for the built-in choice.
    assert set(measured.times) == {NARROW, WIDE, measured.builtin}
    assert measured.builtin.path == "portable" and measured.best in measured.times
    assert kiln.set_tuning(None) is None


def test_the_whole_command_on_the_emulated_device(monkeypatch, capsys, tmp_path):
    path = tmp_path / "table.json"
    device = {"name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "ordinal": 0}
    everything = attention_timing.rows_of
    monkeypatch.setattr(
        attention_timing, "rows_of", lambda *spec: set(everything(*spec)) & {NARROW, WIDE}
    )
    monkeypatch.setattr(tune_attention, "find_gpu", lambda *dtypes: TickingGpu())
    monkeypatch.setattr(tune_attention.control, "diagnose", lambda: {"devices": [device]})
    arguments = ["--shape", "1x100x2x64", "--mask", "causal", "--dtype", "f16", "--seconds", "0"]
    with kiln.device("emulator:sm_90a"):
        assert cli.main(["tune", "attention", *arguments, "--out", str(path)]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[8] for line in lines[1:4]].count("128x64x4") == 1
    # All take one tick of the clock: the first of the sm_90a rows counts as the fastest.
    (written,) = json.loads(path.read_text())["entries"]
    kiln.set_tuning(path)
    try:
        assert Tile.of(explained(SMALL)).config() == written["config"]
    finally:
        kiln.set_tuning(None)


def test_splits_stop_where_the_device_is_full():
    case = AttentionCase(1, 8192, 16, 128, 16, 8192, "float16", causal=True, window=None)
    tile = Tile("sm_90a", 192, 80, 2, splits=2)
    assert attention_timing.rounds_of(case, tile, DEVICE) == pytest.approx(2 * 16 * 43 / 132)


def test_the_rows_of_a_spec():
    spec = {"op": "flash_attention", "dtype": "float16", "head_dim": 64, "mask": "causal"}
    tiles = list(attention_timing.rows_of({**spec, "block_q": 128, "splits": False}, "sm_90"))
    assert NARROW in tiles and WIDE in tiles
    assert [tile.splits for tile in tiles if tile.splits > 1] == list(attention_timing._SPLITS)
    assert {tile.path for tile in tiles} == {"sm_90a"}


def test_a_call_that_is_computed_as_sequences_has_a_tile_of_its_own():
    """A table names rows of dense calls alone, whose tiles may have the same numbers."""
    few = AttentionCase(1, 20, 8, 64, 1, 30000, "float16", causal=True, window=None)
    found = explained(few)
    tile = Tile.of(found)
    assert found["path"] == "sm_90a" and (tile.path, tile.splits) == ("as sequences", 1)
    assert str(tile).endswith("as sequences")
    rows = list(attention_timing.rows_of(found["spec"], "sm_90"))
    assert rows and all(row.path == "sm_90a" for row in rows)
    best = Measured({tile: 1.0, rows[0]: 2.0}, tile)
    assert tune_attention._entry(few, best) is None


def test_a_problem_that_no_row_serves_is_an_error():
    few = AttentionCase(1, 16, 2, 64, 2, 100, "float16", causal=True, window=None)
    with (
        kiln.device("emulator:sm_90a"),
        pytest.raises(ValueError, match="no row of the sm_90a table serves 1 x 16 x 2 x 64"),
    ):
        attention_timing.measure(few, NumpyGpu(), 0, DEVICE)


def test_entries_say_the_mask():
    window = AttentionCase(1, 512, 4, 64, 2, 2048, "bfloat16", True, 1023, head_dim_v=128)
    found = attention_timing.entry_of(window, Tile("sm_90a", 128, 64, 2, splits=3))
    assert (found["mask"], found["keys"]) == ("window", 1024)
    assert (found["len_q"], found["len_kv"], found["heads_kv"]) == (512, 2048, 2)
    assert (found["head_dim"], found["head_dim_v"]) == (64, 128)
    assert found["config"] == {"block_q": 128, "block_kv": 64, "stages": 2, "splits": 3}
    assert attention_timing.entry_of(SMALL, WIDE)["mask"] == "causal"


# -------------------------------------------------------------------------------- the command line


def test_shapes_and_masks():
    assert attention_shape("2x4096x32x128") == AttentionShape(2, 4096, 4096, 32, 32, 128, 128)
    assert attention_shape("1x512/65536x32/8x192/128") == AttentionShape(
        1, 512, 65536, 32, 8, 192, 128
    )
    assert masks("none,causal,window=1023,causal") == [Mask(False), Mask(True), Mask(True, 1023)]


def test_the_grid():
    cases = tune_attention.cases_of(
        tune_attention.default_shapes(), masks("none,causal"), "float16"
    )
    assert len(cases) == 36
    assert {case.batch * case.length for case in cases} == {16384}
    assert {case.heads * case.head_dim for case in cases} == {2048}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--out", "/"],
        ["--out", "/nonexistent/t.json"],
        ["--out", "t.json", "--dtype", "float32"],
        ["--out", "t.json", "--mask", "full"],
        ["--out", "t.json", "--shape", "1x2x3"],
        ["--out", "t.json", "--shape", "1x0x3x64"],
        ["--out", "t.json", "--shape", "1/2x128x3x64"],
        ["--out", "t.json", "--shape", "1x128x8/3x64"],
        ["--out", "t.json", "--shape", "1x128x8x60"],
        ["--out", "t.json", "--shape", "1x128x8x64/264"],
    ],
)
def test_usage_errors(kiln_command, arguments):
    run = kiln_command("tune", "attention", *arguments)
    assert (run.code, run.stdout) == (USAGE, "")
    assert run.stderr and "Traceback" not in run.stderr


def test_without_a_gpu(kiln_command, tmp_path):
    path = tmp_path / "table.json"
    run = kiln_command("tune", "attention", "--out", path, CUDA_VISIBLE_DEVICES="")
    assert (run.code, run.stdout) == (ENVIRONMENT, "")
    assert run.stderr.startswith("kiln: no GPU: ")
    assert not path.exists()


@pytest.fixture
def measured_command(monkeypatch):
    """Runs the command in this process, with a GPU that is none and times that are made up."""
    portable = Tile("portable", 64, 64, 2)
    times = {
        512: Measured({NARROW: 10.0, WIDE: 12.1}, WIDE),
        1024: Measured({NARROW: 11.0, WIDE: 10.0}, WIDE),
        2048: Measured({NARROW: 11.0, portable: 10.0}, portable),
    }
    capability = ["9.0"]

    def devices():
        device = {"name": "NVIDIA H200", "sm_count": 132, "ordinal": 0}
        return {"devices": [{**device, "compute_capability": capability[0]}]}

    gpu = type("Gpu", (), {"ordinal": 0, "out_of_memory": MemoryError})
    monkeypatch.setattr(tune_attention, "measure", lambda case, *others: times[case.length])
    monkeypatch.setattr(tune_attention, "find_gpu", lambda *dtypes: gpu)
    monkeypatch.setattr(tune_attention.control, "diagnose", devices)

    def run(*arguments, on="9.0"):
        capability[0] = on
        return cli.main(["tune", "attention", *map(str, arguments)])

    return run


SHAPES = [f"--shape=1x{length}x2x64" for length in (512, 1024, 2048)]


def test_the_report_and_the_table(measured_command, capsys, tmp_path):
    path = tmp_path / "table.json"
    arguments = [*SHAPES, "--mask", "causal", "--dtype", "f16", "--out", path]
    assert measured_command(*arguments, "--json") == OK
    captured = capsys.readouterr()
    written = json.loads(path.read_text())
    assert json.loads(captured.out) == written
    assert "1 x 512 x 2 x 64, causal: 128x64x4 10.0 us, best of 2" in captured.err
    assert (written["schema"], written["arch"], written["sm_count"]) == (1, "sm_90", 132)
    assert [entry["len_q"] for entry in written["entries"]] == [512, 1024]  # not the portable one
    assert written["entries"][0]["tiles"] == {"128x64x4": 10.0, "192x128x2": 12.1}
    assert written["builtin_over_best"] == {
        "geometric_mean": pytest.approx(1.21 ** (1 / 3)),
        "worst": pytest.approx(1.21),
        "worst_problem": "1 x 512 x 2 x 64, causal",
    }
    # The file is read as it was written.
    kiln.set_tuning(path)
    case = AttentionCase(1, 512, 2, 64, 2, 512, "float16", causal=True, window=None)
    assert Tile.of(explained(case)) == NARROW
    assert measured_command(*arguments) == OK
    assert kiln.set_tuning(None) == str(path)  # it is back after measuring without it
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split("  ")[0] == "1 x 512 x 2 x 64, causal"
    assert lines[1].endswith("fastest") and lines[2].endswith("built-in choice")
    assert "fastest, built-in choice" in "".join(lines)
    assert "1.210 at worst (1 x 512 x 2 x 64, causal)" in lines[-2]


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
def test_entries_of_other_operations_are_kept_on_the_same_device(
    measured_command, capsys, tmp_path, arch
):
    path = tmp_path / "table.json"
    product = {"m": 64, "us": 1.0}
    before = {**DEVICE, "arch": arch, "entries": [product], "model_over_best": {"worst": 1.0}}
    path.write_text(json.dumps(before))
    for _ in range(2):  # its own entries are replaced
        assert measured_command(SHAPES[0], "--mask", "none", "--out", path) == OK
    written = json.loads(path.read_text())
    kept = arch == "sm_90"
    assert [entry.get("op") for entry in written["entries"]] == [None] * kept + ["flash_attention"]
    assert ("model_over_best" in written) == kept
    assert ("keeps its entries of other operations (1)" in capsys.readouterr().err) == kept


def test_another_gpu_has_no_rows_to_tune(measured_command, capsys, tmp_path):
    path = tmp_path / "table.json"
    assert measured_command("--out", path, on="8.0") == ENVIRONMENT
    assert "NVIDIA H200 has 8.0; use the built-in choice" in capsys.readouterr().err
    assert not path.exists()
