"""The command `kiln`: exit codes, --json, what it prints where."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import ONE_KERNEL

OK, CHECK_FAILED, USAGE, COMPILE_FAILED, ENVIRONMENT = range(5)


def test_version_and_help(kiln_command):
    assert re.fullmatch(r"kiln \d+\.\d+\.\d+\n", kiln_command("--version").stdout)
    assert "prewarm" in kiln_command("--help").stdout
    alone = kiln_command()
    assert (alone.code, alone.stdout) == (OK, kiln_command("--help").stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ["polish"],
        ["prewarm"],
        ["cache"],
        ["prewarm", "--model", "x", "--spec", "y"],
        ["prewarm", "--spec", "x", "--jobs", "0"],
        ["prewarm", "--spec", "x", "--jobs", "99999999999"],
        ["inspect", "gemm"],
        ["inspect", "gemm", "--arch", "sm_90", "--dtype", "int8"],
        ["inspect", "flash_attention", "--head-dim", "64", "--arch", "sm_12x"],
        ["inspect", "flash_attention", "--head-dim", "60", "--arch", "sm_90"],
        ["cache", "prune"],
        ["cache", "prune", "--max-size", "much"],
        ["cache", "prune", "--max-size", "90000000000000000000000"],
        ["cache", "prune", "--older-than-nvrtc", "v12.0"],
        ["cache", "prune", "--older-than-nvrtc", "13."],
        ["cache", "prune", "--older-than-nvrtc", "-1"],
    ],
)
def test_usage_errors(kiln_command, arguments):
    run = kiln_command(*arguments)
    assert run.code == USAGE
    assert run.stdout == ""
    assert run.stderr


def test_doctor(kiln_command, cache_dir):
    run = kiln_command("doctor")
    assert run.code == OK, run.stderr
    assert "nvrtc" in run.stdout
    assert str(cache_dir) in run.stdout
    report = kiln_command("doctor", "--json").json()
    assert report["nvrtc"]["loaded"]
    assert report["problems"] == []


def test_doctor_names_the_tuning_table(kiln_command):
    assert "tuning  /tiles.json\n" in kiln_command("doctor", KILN_TUNING="/tiles.json").stdout
    assert "\ntuning" not in kiln_command("doctor", KILN_TUNING="").stdout


def test_doctor_can_require_a_gpu(kiln_command):
    run = kiln_command("doctor", "--require-gpu", "--json", CUDA_VISIBLE_DEVICES="")
    assert run.code == ENVIRONMENT
    assert "no GPU" in run.json()["problems"][0]


def test_missing_nvrtc(kiln_command, spec_file):
    doctor = kiln_command("doctor", KILN_NVRTC="/nonexistent")
    assert doctor.code == ENVIRONMENT
    assert "KILN_NVRTC=/nonexistent cannot be used" in doctor.stdout
    prewarm = kiln_command(
        "prewarm", "--spec", spec_file, "--arch", "sm_90", KILN_NVRTC="/nonexistent"
    )
    assert prewarm.code == ENVIRONMENT
    assert "KILN_NVRTC" in prewarm.stderr
    inspect = kiln_command("inspect", "gemm", "--arch", "sm_90", KILN_NVRTC="/nonexistent")
    assert inspect.code == ENVIRONMENT
    assert inspect.stderr.startswith("kiln: ")


def test_a_warm_cache_needs_no_nvrtc(kiln_command, spec_file):
    arguments = ["prewarm", "--spec", spec_file, "--arch", "sm_90", "--json"]
    assert kiln_command(*arguments).json()["compiled"] == 1
    again = kiln_command(*arguments, KILN_NVRTC="/nonexistent")
    assert again.code == OK
    assert again.json()["cached"] == 1


def test_who_asks_for_it_is_told_what_compiles(kiln_command):
    arguments = ["inspect", "gemm", "--block-m", 16, "--block-n", 64, "--arch"]
    line = r"kiln: compiled gemm bfloat16 nt, tile 16x64x64x6 for sm_{} in \d+\.\d ms \(inspect\)\n"
    assert kiln_command(*arguments, "sm_80").stderr == ""
    warned = kiln_command(*arguments, "sm_86", KILN_JIT="warn")
    assert re.fullmatch(line.format(86), warned.stderr)
    assert kiln_command(*arguments, "sm_86", KILN_JIT="warn").stderr == ""  # a hit
    informed = kiln_command(*arguments, "sm_89", KILN_LOG="info")
    assert re.fullmatch(line.format(89), informed.stderr)
    quiet = kiln_command(*arguments, "sm_90", KILN_JIT="warn", KILN_LOG="error")
    assert (quiet.code, quiet.stderr) == (OK, "")


def test_bad_environment_values_name_their_variable(kiln_command):
    for variable in ("KILN_JIT", "KILN_CACHE_MAX_SIZE", "KILN_LOG"):
        run = kiln_command("cache", "info", **{variable: "nonsense"})
        assert run.code == USAGE
        assert variable in run.stderr


def test_an_interrupt_ends_the_work(environment, cache_dir):
    command = [sys.executable, "-m", "kiln", "prewarm", "--spec", "-", "--arch", "sm_90"]
    run = subprocess.Popen(
        [*command, "--jobs", "2"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    specs = [{"op": "gemm", "layout": layout} for layout in ("nn", "nt", "tn", "tt")]
    run.stdin.write(json.dumps(specs))
    run.stdin.close()
    run.stdin = None
    total = int(re.match(r"\[ *1/(\d+)\]", run.stderr.readline())[1])
    run.send_signal(signal.SIGINT)
    errors = run.communicate(timeout=60)[1]
    assert run.returncode == 130, errors
    assert "Traceback" not in errors
    assert len(list(cache_dir.rglob("*.cubin"))) < total


def test_a_reader_that_left_is_no_error(environment):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "kiln", "cache", "info"]
    run = subprocess.run(
        command, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_full_disk_and_a_forbidden_file_are_the_environments(environment, kiln_command, tmp_path):
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "kiln", "cache", "info"],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert run.returncode == ENVIRONMENT
    assert run.stderr.count("No space left") == 1
    assert "Traceback" not in run.stderr
    if os.getuid() != 0:  # root reads everything
        path = tmp_path / "spec.json"
        path.touch(mode=0)
        run = kiln_command("prewarm", "--spec", path, "--arch", "sm_90")
        assert run.code == ENVIRONMENT


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nowhere.json", "No such file or directory"),
        ("/tmp", "Is a directory"),
        ("/dev/null/spec.json", "Not a directory"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_path_that_names_no_file_is_usage(kiln_command, path, why):
    for arguments in (["prewarm", "--arch", "sm_90", "--spec"], ["cache", "import"]):
        run = kiln_command(*arguments, path)
        assert run.code == USAGE
        assert f"'{path}' cannot be used: {why}; check the path and its permissions" in run.stderr


def test_other_errors_of_files_are_the_environments(monkeypatch, capsys):
    from kiln import cli

    def run(options):
        raise OSError(errno.EMFILE, "Too many open files", "x")

    monkeypatch.setattr(cli.doctor, "run", run)
    assert cli.main(["doctor"]) == ENVIRONMENT
    assert "'x' cannot be used: Too many open files" in capsys.readouterr().err


@pytest.mark.parametrize("code", [OK, CHECK_FAILED])
def test_a_reader_that_ends_early_does_not_change_the_code(monkeypatch, code):
    from kiln import cli

    class Pipe(io.StringIO):
        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr(cli.doctor, "run", lambda options: code)
    monkeypatch.setattr(sys, "stdout", Pipe())
    assert cli.main(["doctor"]) == code


def test_a_failing_compile(kiln_command, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({**ONE_KERNEL, "epilogue": "acc +* 2"}))
    run = kiln_command("prewarm", "--spec", path, "--arch", "sm_90", "--json")
    assert run.code == COMPILE_FAILED
    assert "acc +* 2" in run.json()["failed"][0]["error"]
    inspect = ["inspect", "gemm", "--arch", "sm_90", "--block-m", 16, "--epilogue", "acc +* 2"]
    assert kiln_command(*inspect).code == COMPILE_FAILED


def test_an_unknown_model_names_the_nearest(kiln_command):
    run = kiln_command("prewarm", "--model", "gema-2-2b", "--arch", "sm_90")
    assert run.code == USAGE
    assert run.stderr.count("Gemma-2") == 3


def test_a_folder_without_a_config_is_told_so(kiln_command, tmp_path):
    run = kiln_command("prewarm", "--model", tmp_path, "--arch", "sm_90")
    assert run.code == USAGE
    assert f"the folder '{tmp_path}' has no config.json" in run.stderr


def test_short_names_of_8_bit_floats(kiln_command):
    spec = ["inspect", "gemm", "--arch", "sm_90a", "--block-m", 128, "--block-n", 128, "--json"]
    short, name = (kiln_command(*spec, "--dtype", dtype) for dtype in ("e4m3", "float8_e4m3fn"))
    assert short.code == name.code == OK, short.stderr
    keys = [[kernel["key"] for kernel in run.json()] for run in (short, name)]
    assert keys[0] == keys[1] != []
    run = kiln_command("bench", "gemm", "--m", 8, "--n", 8, "--k", 8, "--dtype", "f8")
    assert run.code == USAGE
    assert "float32, float8_e4m3fn or float8_e5m2, got 'f8'" in run.stderr


def test_models_are_found_in_any_case(kiln_command):
    arguments = ["--arch", "sm_90a", "--check", "--json"]
    run = kiln_command("prewarm", "--model", "gemma-2-9B", *arguments)
    assert run.code == CHECK_FAILED  # the cache is empty
    names = " ".join(kernel["what"] for kernel in run.json()["kernels"])
    for word in ("d256", "window", "causal", "softcap", "gemm bfloat16 nt"):
        assert word in names


def test_inspect(kiln_command):
    arguments = ["inspect", "gemm", "--dtype", "f16", "--block-m", 32, "--stages", 4]
    arguments += ["--arch", "sm_90a"]
    (kernel,) = kiln_command(*arguments, "--json").json()
    assert kernel["registers"] > 0
    assert "portable" in kiln_command(*arguments).stdout
    assert "#include" in kiln_command(*arguments, "--source").stdout
    assert ".visible .entry" in kiln_command(*arguments, "--ptx").stdout


def test_inspect_attention(kiln_command):
    flags = ["--head-dim", 64, "--causal", "--block-q", 64, "--arch", "sm_90", "--json"]
    (kernel,) = kiln_command("inspect", "flash_attention", *flags).json()
    assert kernel["spec"]["mask"] == "causal"


def test_cache_commands(kiln_command, spec_file, cache_dir):
    kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90")
    assert kiln_command("cache", "info", "--json").json()["layers"][0]["entries"] == 1
    (entry,) = kiln_command("cache", "list", "--json").json()
    assert entry["pinned"]
    assert entry["key"][:12] in kiln_command("cache", "list").stdout
    assert kiln_command("cache", "verify").code == OK
    assert "/" in kiln_command("cache", "info").stdout
    older = kiln_command("cache", "prune", "--older-than-nvrtc", "99.0", "--json")
    report = older.json()
    assert [report[name] for name in ("removed", "failed", "problem")] == [1, 0, ""]
    assert [gone["key"] for gone in report["entries"]] == [entry["key"]]
    kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90")
    assert re.fullmatch(r"1 kernels removed, .* KiB\n", kiln_command("cache", "clear").stdout)
    assert kiln_command("cache", "list", "--json").json() == []


def test_a_version_that_is_none_removes_nothing(kiln_command, spec_file):
    kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90")
    for version in ("v12.0", "99.x", "99..0", "99999999999"):
        run = kiln_command("cache", "prune", "--older-than-nvrtc", version)
        assert run.code == USAGE
        assert f"must be like 13.0, got '{version}'" in run.stderr
    assert kiln_command("cache", "prune", "--older-than-nvrtc", "1").code == OK
    assert len(kiln_command("cache", "list", "--json").json()) == 1


def test_a_refused_folder_is_no_success(kiln_command, spec_file, cache_dir):
    kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90")
    cache_dir.chmod(0o777)
    for arguments in (["clear"], ["prune", "--max-size", "0"]):
        run = kiln_command("cache", *arguments)
        assert run.code == ENVIRONMENT
        assert "is writable by" in run.stderr
        assert run.stdout == "0 kernels removed, 0 B\n"
        report = kiln_command("cache", *arguments, "--json").json()
        assert report["removed"] == 0
        assert "chmod" in report["problem"]
    run = kiln_command("cache", "verify", "--json")
    assert run.code == CHECK_FAILED
    assert run.json()["faults"][0]["path"] == str(cache_dir)


def test_paths_that_are_no_utf8(kiln_command, tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    for arguments in (["doctor"], ["cache", "info"]):
        run = kiln_command(*arguments, "--json", KILN_CACHE_DIR=folder)
        assert run.code == OK, run.stderr
        assert "caf\ufffd" in json.dumps(run.json(), ensure_ascii=False)


def test_names_that_stdout_cannot_encode(kiln_command, spec_file, tmp_path):
    kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90")
    run = kiln_command("cache", "export", tmp_path / "é.tar", PYTHONIOENCODING="ascii")
    assert run.code == OK, run.stderr
    assert f"  {tmp_path}/\\xe9.tar\n" in run.stdout
    assert (
        "3f2a\\u2026" in kiln_command("cache", "import", "--help", PYTHONIOENCODING="ascii").stdout
    )


def test_verify_finds_a_damaged_entry(kiln_command, spec_file, cache_dir):
    kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90")
    (cubin,) = cache_dir.rglob("*.cubin")
    damaged = bytearray(cubin.read_bytes())
    damaged[100] ^= 1
    cubin.write_bytes(damaged)
    run = kiln_command("cache", "verify", "--json")
    assert run.code == CHECK_FAILED
    assert len(run.json()["faults"]) == 1
    again = kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90", "--json")
    assert again.json()["compiled"] == 1  # damage is a miss
    assert kiln_command("cache", "verify").code == OK
