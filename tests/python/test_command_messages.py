"""Errors of the command line and of environment variables; test_messages.py has those of calls."""

import kiln
import pytest
from kiln import cli
from message_page import check

FLAGS = [
    ("bench gemm --m 0 --n 1 --k 1", "must be whole numbers like 1,16,64, got '0'"),
    ("bench flash_attention --shape 1x2", "must be BATCHxLENGTHxHEADSxHEAD_DIM such as 2x4096x32"),
    ("bench flash_attention --shape 1x8x4x64 --kv-heads 3", "must divide the 4 heads of q, got 3"),
    (
        "bench flash_attention --shape 1x8x4x64 --kv-len 0",
        "must be a whole number from 1 on, got 0",
    ),
    ("bench flash_attention --shape 1x8x4x64 --window -1", "a whole number from 0 on, got -1"),
    ("tune gemm --shape 1x2 --out t", "must be MxNxK such as 64x4096x14336, got '1x2'"),
    ("tune gemm --shape 1x2x3 --m 4 --out t", "--m belongs to --model; a --shape has its own M"),
    ("tune gemm --shape 1x2x3 --out /", "--out / is a folder; give the path of a file"),
    ("cache prune", "cache prune needs --max-size, --older-than or --older-than-nvrtc"),
    ("cache prune --max-size much", "must be like 500M or 2G and below 2^63, got 'much'"),
    ("bench gemm --m 1 --n 1 --k 1 --seconds x", "must be seconds from 0 to 3600, got 'x'"),
    ("cache prune --older-than x", "must be days from 0 to 36500, got 'x'"),
    ("cache prune --older-than-nvrtc x", "the NVRTC version must be like 13.0, got 'x'"),
    ("emulate x.ptx --grid 0", "must be X[,Y[,Z]], each at least 1, got '0'"),
    ("emulate x.ptx --trace 1", "must be BLOCK:THREAD, such as 0:5, got '1'"),
    ("emulate x.ptx --arg f7[2]=ones", "unknown type 'f7'; types are f16, bf16, f32, f64, u8..s64"),
    ("emulate x.ptx --arg nothing", "must be TYPE[N]=random|zeros|ones|iota|NUMBER, TYPE=NUMBER"),
    ("prewarm --model llama-3.1-8b --dtype f32", "--dtype must be bfloat16 or float16 for --model"),
    (
        "inspect gemm --arch sm_80 --epilogue {value:acc}",
        "must be a C++ expression or a JSON object, and '{value:acc}' is not JSON: Expecting prop",
    ),
    (
        "inspect gemm --arch sm_90a --arch sm_80",
        "argument --arch: give it once; kernels of one arch are shown",
    ),
    ("prewarm --spec x --dtype f16", "--dtype belongs to --model; a spec has dtypes of its own"),
    ("prewarm --spec x --cache-dtype int8", "--cache-dtype belongs to --model; a spec has dtypes"),
    ("cache export /x/y --dtype f16", "--dtype belongs to --model; a spec has dtypes of its own"),
    (
        "prewarm --model llama-3.1-8b --arch sm_80 --check --recompile",
        "give check or recompile, not both: check compiles nothing",
    ),
    ("prewarm --model llama --jobs 0", "must be a whole number from 1 to 4096, got '0'"),
]


@pytest.mark.parametrize(("line", "text"), FLAGS, ids=[line for line, _ in FLAGS])
def test_flags(line, text, capsys):
    try:
        code = cli.main(line.split())
    except SystemExit as left:  # argparse's own
        code = left.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    check(ValueError(captured.err), ValueError, text)


def test_a_machine_without_a_driver_names_an_arch(kiln_command, spec_file):
    if kiln.diagnose()["devices"]:
        pytest.skip("a GPU is here: prewarm takes its arch")
    run = kiln_command("prewarm", "--spec", spec_file)
    assert run.code == 2
    check(
        ValueError(run.stderr),
        ValueError,
        "no arch was given and there is no GPU here; name an arch",
    )


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"KILN_LOG": "loud"}, "KILN_LOG must be error, warning, info or debug, got 'loud'"),
        ({"KILN_JIT": "on"}, "KILN_JIT: the jit mode must be auto, warn or off, got 'on'"),
        (
            {"KILN_CACHE_MAX_SIZE": "x"},
            "a whole number with an optional K, M or G, below 2^64 bytes, got 'x'",
        ),
        ({"KILN_DEVICE": "x"}, "KILN_DEVICE: the device must be auto, cuda, cuda:N, emulator"),
        ({"KILN_TEMPLATE_DIR": "/"}, "holds no base/types.cuh; point it to a templates/ folder"),
    ],
)
def test_variables(kiln_command, variables, text):
    run = kiln_command("inspect", "gemm", "--arch", "sm_80", "--block-m", 16, **variables)
    assert (run.code, run.stdout) == (2, "")
    check(ValueError(run.stderr), ValueError, text)


def test_the_fake_drivers_devices(kiln_command, fake_driver, spec_file):
    run = kiln_command("bench", "gemm", "--m", 1, "--n", 64, "--k", 64, LD_LIBRARY_PATH=fake_driver)
    check(ValueError(run.stderr), ValueError, "memory on the GPU comes from PyTorch or CuPy")


@pytest.mark.parametrize(
    ("command", "path", "what"),
    [
        ("tune gemm --shape 1x8x8 --out", "/nonexistent/t.json", "cannot be used: No such file or"),
        ("tune attention --shape 1x8x8x64 --out", "/dev/null/t", "cannot be used: Not a directory"),
        ("tune gemm --shape 1x8x8 --out", "", "--out is an empty path; give the path of a file"),
        ("cache export", "", "'' cannot be used: No such file or directory; check the path and it"),
    ],
)
def test_paths_are_the_users(command, path, what, capsys, monkeypatch):
    monkeypatch.setattr(cli.bundle.bundle, "_wanted_keys", lambda problems, arch: [])
    assert cli.main([*command.split(), path]) == 2
    error = capsys.readouterr().err
    assert repr(path) in error or not path
    check(ValueError(error), ValueError, what)


def test_a_command_that_memory_does_not_suffice_for(monkeypatch, capsys):
    def run(options):
        raise MemoryError

    monkeypatch.setattr(cli.doctor, "run", run)
    assert cli.main(["doctor"]) == 4
    check(ValueError(capsys.readouterr().err), ValueError, "there is not enough memory here for th")
