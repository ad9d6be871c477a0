"""The cache under trouble: many processes, folders that cannot be read or written, full disks."""

import json
import os
import resource
import subprocess
import sys

import kiln

PROCESSES = 8


def test_processes_on_one_empty_cache(environment, spec_file, cache_dir, kiln_command):
    command = [sys.executable, "-m", "kiln", "prewarm", "--json"]
    command += ["--spec", str(spec_file), "--arch", "sm_90"]
    runs = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for _ in range(PROCESSES)
    ]
    reports = [json.loads(run.communicate(timeout=300)[0]) for run in runs]
    assert [run.returncode for run in runs] == [0] * PROCESSES
    assert sum(report["compiled"] for report in reports) == 1
    assert sum(report["cached"] for report in reports) == PROCESSES - 1
    assert len(list(cache_dir.rglob("*.cubin"))) == 1
    assert kiln_command("cache", "verify", "--json").json() == {"checked": 1, "faults": []}


def inspect_one(kiln_command, **arguments):
    return kiln_command(
        "inspect", "gemm", "--block-m", 16, "--arch", "sm_90", "--json", **arguments
    )


def test_a_folder_that_cannot_be_made(kiln_command, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    run = inspect_one(kiln_command, KILN_CACHE_DIR=str(blocked / "cache"))
    assert run.code == 0
    assert run.json()[0]["registers"] > 0
    assert "[cache]" in run.stderr
    assert str(blocked) in run.stderr


def test_a_file_in_place_of_the_folder(kiln_command, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    run = inspect_one(kiln_command, KILN_CACHE_DIR=str(blocked))
    assert run.code == 0
    assert "[cache]" in run.stderr


def test_a_folder_that_cannot_be_read(kiln_command, cache_dir):
    cache_dir.mkdir()
    cache_dir.chmod(0)
    try:
        run = inspect_one(kiln_command)
    finally:
        cache_dir.chmod(0o700)
    assert run.code == 0
    if os.getuid() != 0:  # root reads everything
        assert "[cache]" in run.stderr


def test_a_full_disk(kiln_command, cache_dir):
    # No file may grow beyond 1 KiB: writes fail half-way, as on a full disk.
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    run = inspect_one(kiln_command, preexec_fn=limit)
    assert run.code == 0
    assert run.stderr.count("[cache]") == 1
    assert list(cache_dir.rglob("*.cubin")) == []
    assert inspect_one(kiln_command).json()[0]["cached"] is False
    assert inspect_one(kiln_command).json()[0]["cached"] is True


def test_prewarm_on_a_full_disk_is_no_success(kiln_command, spec_file):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    run = kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90", preexec_fn=limit)
    assert run.code == 4
    assert "could not be written" in run.stderr


def test_no_writable_layer(kiln_command):
    run = inspect_one(kiln_command, KILN_CACHE_DIR="")
    assert run.code == 0
    assert run.stderr == ""


def test_prewarm_without_a_writable_layer_compiles_nothing(kiln_command, tmp_path):
    specs = tmp_path / "specs.json"
    specs.write_text('[{"op": "rms_norm", "threads": 256}]')
    run = kiln_command("prewarm", "--spec", specs, "--arch", "sm_80", KILN_CACHE_DIR="")
    assert run.code == 4
    error = "KILN_CACHE_DIR is empty; set it to a folder, or unset it"
    (summary,) = [line for line in run.stderr.splitlines() if line.endswith(error)]
    assert " more: it is not compiled, because it could not be written" in summary
    assert " 0 compiled" in run.stdout


def test_read_only_layers(kiln_command, spec_file, cache_dir):
    kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90")
    variables = {"KILN_CACHE_DIR": "", "KILN_CACHE_PATH": str(cache_dir)}
    run = kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90", "--json", **variables)
    assert run.json()["cached"] == 1


def test_log_lines_go_where_they_are_sent(environment, tmp_path):
    code = (
        "import kiln; lines = []\n"
        "kiln.set_log(lambda level, text: lines.append((level, text)))\n"
        "kiln.inspect({'op': 'gemm', 'block_m': 16}, 'sm_90')\n"
        "print(lines)"
    )
    (tmp_path / "file").write_text("")
    environment["KILN_CACHE_DIR"] = str(tmp_path / "file" / "cache")
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert run.stdout.startswith("[(1, '")
    assert "[cache]" in run.stdout
    assert run.stderr == ""


def test_clearing_memory_keeps_the_disk():
    kiln.clear_memory_cache()
    assert kiln.stats()["kernels_resident"] == 0


EMULATED = """
import json
import kiln, numpy as np
from kiln import jit

x = np.ones([2, 64], np.float32)
before = kiln.explain("rms_norm", x)
jit.rms_norm(x)
after = kiln.explain("rms_norm", x)
compiles = kiln.stats()["compiles"]
print(json.dumps([before["layer"], before["key"], after["arch"], compiles, before["spec"]]))
"""


def emulated_call(environment):
    run = subprocess.run(
        [sys.executable, "-c", EMULATED],
        env={**environment, "KILN_DEVICE": "emulator:sm_90a"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def test_an_emulated_device_compiles_ptx_alone(environment, cache_dir, kiln_command, tmp_path):
    layer, key, arch, compiles, spec = emulated_call(environment)
    assert (layer, arch, compiles) == (None, "sm_90", 1)
    (cubin,) = cache_dir.rglob("*.cubin")
    assert cubin.stat().st_size == 0
    assert cubin.parent.name + cubin.stem != key
    assert json.loads(cubin.with_suffix(".json").read_text())["description"]["arch"] == "compute_90"
    assert kiln_command("cache", "verify", "--json").json() == {"checked": 1, "faults": []}
    layer, _, _, compiles, _ = emulated_call(environment)
    assert (layer, compiles) == (str(cache_dir), 0)

    # A GPU's kernel is another entry.
    file = tmp_path / "spec.json"
    file.write_text(json.dumps([spec]))
    prewarm = ("prewarm", "--spec", file, "--arch", "sm_90", "--json")
    assert kiln_command(*prewarm, "--check").code == 1
    assert kiln_command(*prewarm).json()["compiled"] == 1
    assert len(list(cache_dir.rglob("*.cubin"))) == 2
    cubin.unlink()  # an emulated device runs what is left
    assert emulated_call(environment)[3] == 0
