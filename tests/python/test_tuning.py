"""The measured table of GEMM tiles: `kiln tune gemm` as far as it goes without a GPU, the listing
of tiles, and a table's effect on what a call would run."""

import json
import subprocess
import sys

import kiln
import numpy as np
import pytest
from kiln.cli import gemm_timing, tune_gemm
from kiln.cli.gemm_timing import Kind, Measured, Shape
from kiln.cli.turns import check_results, take_turns

OK, CHECK_FAILED, USAGE, COMPILE_FAILED, ENVIRONMENT = range(5)
WIDE = {"block_m": 128, "block_n": 256, "block_k": 64, "stages": 4, "cluster": 1}
SPLIT = {"block_m": 64, "block_n": 128, "block_k": 64, "stages": 9, "cluster": 1, "splits": 3}


def table(config, **fields):
    entry = {"dtype": "float16", "out_dtype": "float16", "layout": "nt"}
    entry.update({"m": 64, "n": 256, "k": 512, "batch": 1, "config": config, "us": 1.0})
    head = {"schema": 1, "device": "any", "arch": "sm_90", "sm_count": 132}
    return {**head, "entries": [{**entry, **fields}]}


@pytest.fixture
def table_file(tmp_path):
    """Writes a table and returns its path; the process has none afterwards."""

    def write(content):
        path = tmp_path / "table.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    yield write
    kiln.set_tuning(None)


def explained(m=64):
    a, w = np.zeros((m, 512), np.float16), np.zeros((256, 512), np.float16)
    with kiln.device("emulator:sm_90a"):
        return kiln.explain("gemm", a, w, trans_b=True)


# ------------------------------------------------------------------------------------ the table


def test_a_table_changes_what_runs_and_says_so(table_file):
    assert kiln.set_tuning(None) is None
    model = explained()
    path = table_file(table(WIDE))
    assert kiln.set_tuning(path) is None
    assert explained()["config"] == "128x256x64x4"
    assert explained()["config"] != model["config"]
    assert explained()["why"][-1] == (
        f"tile of the tuning table {path}: the fastest measured at M = 64"
    )
    assert "M = 64" in explained(40)["why"][-1]
    assert explained(32)["why"][-1] == explained(32)["why"][1]  # another power of two
    assert kiln.set_tuning(str(table_file(table(SPLIT)))) == str(path)
    assert (explained()["config"], explained()["splits"]) == ("64x128x64x9 split swapped", 3)
    assert kiln.set_tuning(None) == str(path)
    assert explained() == model


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is not valid JSON"),
        ("[" * 200_000, "nests arrays and objects deeper than 64 levels"),
        ("[]", "must be an object"),
        ({"schema": 3}, "has schema 3"),
        (table(WIDE, n=0), "entry 1: field 'n' must be a whole number from 1 on, got 0"),
        (table(WIDE, dtype="int8"), "field 'dtype'"),
        (table({}), "field 'block_m' is missing"),
    ],
)
def test_a_malformed_table_is_an_error_that_changes_nothing(table_file, content, text):
    path = table_file(content)
    with pytest.raises(ValueError, match="tuning table") as error:
        kiln.set_tuning(path)
    assert str(path) in str(error.value) and text in str(error.value)
    assert kiln.set_tuning(None) is None


def test_a_missing_table_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json: the file cannot be read"):
        kiln.set_tuning(tmp_path / "none.json")
    with pytest.raises(TypeError):
        kiln.set_tuning(3)


SCRIPT = """
import kiln, numpy
a, w = numpy.zeros((64, 512), numpy.float16), numpy.zeros((256, 512), numpy.float16)
with kiln.device("emulator:sm_90a"):
    for _ in range(3):
        print(kiln.explain("gemm", a, w, trans_b=True)["config"])
print(kiln.set_tuning(None))
"""


def run_with(environment, path):
    variables = {**environment, "KILN_TUNING": str(path)}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=variables, capture_output=True, text=True, check=True
    )


def test_the_environment_names_a_table(environment, table_file):
    path = table_file(table(WIDE))
    run = run_with(environment, path)
    assert run.stdout.split() == ["128x256x64x4"] * 3 + [str(path)]
    assert run.stderr == ""


def test_a_bad_table_of_the_environment_is_one_warning(environment, table_file):
    for path in (table_file("{"), "/nonexistent.json"):
        run = run_with(environment, path)
        (line,) = run.stderr.splitlines()
        assert line.startswith(f"kiln: KILN_TUNING is ignored: tuning table {path}: ")
        assert run.stdout.splitlines()[0] == explained()["config"]
        assert run.stdout.splitlines()[-1] == "None"


# ------------------------------------------------------------------------------ listing of tiles


def test_listed_configs_are_what_config_takes():
    configs = kiln.gemm_configs(arch="sm_90a", dtype="float16", layout="nt", k=512)
    assert WIDE in configs and SPLIT in configs
    assert len({tuple(sorted(config.items())) for config in configs}) == len(configs)
    a, w = np.zeros((64, 512), np.float16), np.zeros((256, 512), np.float16)
    with kiln.device("emulator:sm_90a"):
        for config in configs:
            found = kiln.explain("gemm", a, w, trans_b=True, config=config)
            assert gemm_timing._config_of(found) == config
    shallow = kiln.gemm_configs(arch="sm_90a", dtype="float16", k=64)
    assert {config.get("splits", 1) for config in shallow} == {1}
    portable = kiln.gemm_configs(arch="sm_80", dtype="float16")
    assert portable and all(set(config) <= set(WIDE) for config in portable)


@pytest.mark.parametrize(
    "arguments",
    [{"arch": "sm_1"}, {"arch": "sm_90", "colour": 1}, {"arch": "sm_90", "k": 0}],
)
def test_listing_checks_its_arguments(arguments):
    with pytest.raises(ValueError):
        kiln.gemm_configs(**arguments)


# ------------------------------------------------------------------------------------- measuring


class FakeGpu:
    """A clock that the fake calls advance; flushing takes time, which nobody is to be charged."""

    def __init__(self):
        self.now = 0.0
        self.flushes = 0

    def flush(self):
        self.flushes += 1
        self.now += 1000

    def event(self):
        return self.now

    def microseconds(self, before, after):
        return after - before

    def synchronize(self):
        pass


def fake_calls(gpu, times, log):
    def call(name):
        def run():
            log.append(name)
            gpu.now += times[name]

        return run

    return {name: call(name) for name in times}


def test_calls_take_turns_and_slow_ones_leave():
    gpu, log = FakeGpu(), []
    calls = fake_calls(gpu, {"a": 10, "b": 12, "slow": 20, "model": 30}, log)
    times = take_turns(calls, gpu, 0, "model", now=lambda: gpu.now)
    assert times == {"a": 10, "b": 12, "model": 30}
    assert [log.count(name) for name in ("a", "b", "slow", "model")] == [7, 7, 3, 7]
    assert gpu.flushes == len(log)
    turns = [tuple(log[i : i + 4]) for i in range(0, 12, 4)]
    assert all(set(turn) == set(calls) for turn in turns) and len(set(turns)) > 1


def test_what_prepares_a_call_is_not_charged():
    gpu, log = FakeGpu(), []

    def prepare(name):
        log.append(f"prepares {name}")
        gpu.now += 500

    calls = fake_calls(gpu, {"a": 10, "b": 12}, log)
    assert take_turns(calls, gpu, 0, now=lambda: gpu.now, prepare=prepare) == {"a": 10, "b": 12}
    assert all(log[i] == f"prepares {log[i + 1]}" for i in range(0, len(log), 2))


def test_the_time_allowed_is_kept():
    gpu, log = FakeGpu(), []
    calls = fake_calls(gpu, {"a": 10, "b": 10}, log)
    take_turns(calls, gpu, 50e3, now=lambda: gpu.now)
    assert 24 <= log.count("a") <= 26  # 2020 us a turn


class NumpyGpu(FakeGpu):
    """Arrays that the emulated device takes."""

    def random(self, shape, dtype):
        return np.random.default_rng(0).normal(size=shape).astype(dtype)

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)

    def as_float(self, matrix):
        return matrix.astype(np.float32)


KIND = Kind("float16", "float16", "nt", "full")


def test_measuring_on_the_emulated_device(monkeypatch):
    small = {"block_m": 32, "block_n": 64, "block_k": 64, "stages": 14, "cluster": 1}
    other = {**small, "stages": 9, "splits": 2}
    listed = kiln.gemm_configs
    monkeypatch.setattr(
        gemm_timing.control,
        "gemm_configs",
        lambda **named: [config for config in listed(**named) if config in (small, other)],
    )
    with kiln.device("emulator:sm_90a"):
        measured = gemm_timing.measure(KIND, Shape(17, 64, 128), NumpyGpu(), 0, "sm_90")
    assert measured.best in (small, other, measured.model)
    assert 2 <= measured.tiles <= 3


@pytest.mark.parametrize("wrong", ["nothing", "other"])
def test_a_wrong_result_is_an_error(wrong):
    gpu = NumpyGpu()
    out = gpu.empty((4, 8), "float16")
    values = gpu.random((4, 8), "float16")

    def good():
        out[...] = values

    def bad():
        if wrong == "other":
            out[...] = values
            out[3, 5] += 1

    def rounded():
        out[...] = values * np.float16(1.0005)

    limit = gemm_timing.limit_of(KIND)
    check_results("tune", {"x": good, "y": rounded}, out, gpu, limit)
    with pytest.raises(kiln.Error, match="tune: the results of tiles y and x differ"):
        check_results("tune", {"x": good, "y": bad}, out, gpu, limit)


# -------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["gemm"],
        ["gemm", "--out", "t.json"],
        ["gemm", "--shape", "1x2x3"],
        ["gemm", "--shape", "1x2", "--out", "t.json"],
        ["gemm", "--shape", "1x0x3", "--out", "t.json"],
        ["gemm", "--shape", "1x2x3", "--m", "4", "--out", "t.json"],
        ["gemm", "--shape", "1x2x3", "--model", "llama-3.1-8b", "--out", "t.json"],
        ["gemm", "--model", "no such", "--out", "t.json"],
        ["gemm", "--model", "llama-3.1-8b", "--m", "1,x", "--out", "t.json"],
        ["gemm", "--shape", "1x2x3", "--seconds", "-1", "--out", "t.json"],
        ["gemm", "--shape", "1x2x3", "--precision", "fast", "--out", "t.json"],
        ["gemm", "--shape", "1x2x3", "--out", "/nonexistent/t.json"],
        ["gemm", "--shape", "1x2x3", "--out", "/"],
        ["norm", "--out", "t.json"],
    ],
)
def test_usage_errors(kiln_command, arguments):
    run = kiln_command("tune", *arguments)
    assert (run.code, run.stdout) == (USAGE, "")
    assert run.stderr and "Traceback" not in run.stderr


def test_help_teaches(kiln_command):
    text = kiln_command("tune", "gemm", "--help").stdout
    assert "KILN_TUNING=" in text and "MxNxK" in text and "power of two" in text


def test_without_a_gpu(kiln_command, tmp_path):
    path = tmp_path / "table.json"
    arguments = ["tune", "gemm", "--shape", "16x64x64", "--out", path, "--json"]
    run = kiln_command(*arguments, CUDA_VISIBLE_DEVICES="")
    assert (run.code, run.stdout) == (ENVIRONMENT, "")
    (line,) = run.stderr.splitlines()
    assert line.startswith("kiln: no GPU: ")
    assert not path.exists()


@pytest.fixture
def measured_command(monkeypatch):
    """Runs the command in this process, with a GPU that is none and times that are made up."""
    times = {1: (10.0, 10.0), 64: (10.0, 12.1), 4096: (None, None)}

    def measure(kind, shape, gpu, seconds, arch):
        best, model = times[shape.m]
        if best is None:
            raise MemoryError("2 GiB wanted")
        return Measured(WIDE, best, SPLIT, model, 30, kind.layout)

    device = {"name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "ordinal": 0}
    monkeypatch.setattr(tune_gemm, "measure", measure)
    gpu = type("Gpu", (), {"ordinal": 0, "out_of_memory": MemoryError})
    monkeypatch.setattr(tune_gemm, "find_gpu", lambda *dtypes: gpu)
    monkeypatch.setattr(tune_gemm.control, "diagnose", lambda: {"devices": [device]})
    from kiln import cli

    return lambda *arguments: cli.main([*map(str, arguments)])


def test_the_report_and_the_table(measured_command, capsys, tmp_path):
    path = tmp_path / "table.json"
    shapes = ["--shape", "1x256x512", "--shape", "64x256x512"]
    arguments = ["tune", "gemm", *shapes, "--dtype", "f16", "--out", path]
    assert measured_command(*arguments, "--json") == OK
    captured = capsys.readouterr()
    written = json.loads(path.read_text())
    assert json.loads(captured.out) == written
    assert "[2/2]    0 s left  64 x 256 x 512: 128x256x64x4 10.0 us, best of 30" in captured.err
    assert written["model_over_best"] == {
        "geometric_mean": pytest.approx(1.1),
        "worst": pytest.approx(1.21),
        "worst_shape": [64, 256, 512],
    }
    assert (written["schema"], written["arch"], written["sm_count"]) == (1, "sm_90", 132)
    assert written["entries"][1]["model"] == {"config": SPLIT, "us": 12.1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.json"]
    # The file is read as it was written.
    kiln.set_tuning(path)
    assert "M = 64" in explained()["why"][-1]
    assert measured_command(*arguments) == OK
    assert kiln.set_tuning(None) == str(path)  # it is back after measuring without it
    out = capsys.readouterr().out
    assert "64x128x64x9 splits 3" in out and "21.0 %" in out
    assert "1.100 (geometric mean), 1.210 at worst (64 x 256 x 512)" in out


def test_what_was_measured_before_memory_ran_out_is_written(measured_command, capsys, tmp_path):
    path = tmp_path / "table.json"
    shapes = ["--shape", "1x256x512", "--shape", "4096x256x512"]
    assert measured_command("tune", "gemm", *shapes, "--out", path) == ENVIRONMENT
    assert "4096 x 256 x 512 does not fit in the GPU's memory (2 GiB" in capsys.readouterr().err
    assert len(json.loads(path.read_text())["entries"]) == 1


def test_shapes_of_a_model(measured_command, capsys, tmp_path):
    path = tmp_path / "table.json"
    arguments = ["tune", "gemm", "--model", "llama-3.1-8b", "--m", "1,64", "--out", path, "--json"]
    assert measured_command(*arguments) == OK
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert len(entries) == 10
    assert {(e["n"], e["k"]) for e in entries} >= {(6144, 4096), (28672, 4096), (4096, 14336)}
    assert {e["dtype"] for e in entries} == {"bfloat16"}
