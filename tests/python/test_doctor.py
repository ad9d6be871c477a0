"""`kiln doctor`: what it finds, what it makes of it, and that every problem has its cure."""

import copy
import json
import pathlib
import re

import kiln
import pytest
from kiln.cli import doctor

OK, CHECK_FAILED, USAGE, COMPILE_FAILED, ENVIRONMENT = range(5)
GPU = {
    "ordinal": 0,
    "name": "NVIDIA H200",
    "compute_capability": "9.0",
    "sm_count": 132,
    "memory_bytes": 2**37,
}
LAYER = {
    "path": "/c",
    "writable": True,
    "usable": True,
    "verdict": "ok",
    "advice": "",
    "warning": "",
    "owner": "ann",
    "mode": "0700",
    "entries": 1,
    "bytes": 10,
}
HEALTHY = {
    "driver": {"found": True, "version": 12090, "path": "/libcuda.so", "problem": ""},
    "nvrtc": {
        "loaded": True,
        "version": "12.9",
        "path": "/n",
        "how": "pip",
        "archs": [80, 90],
        "handles_signals": False,
        "passed_over": [],
        "problem": "",
    },
    "devices": [GPU],
    "cache": {"layers": [LAYER]},
    "environment": {"KILN_JIT": "auto", "KILN_TUNING": "", "KILN_TEMPLATE_DIR": ""},
}


def report_with(**changes):
    report = copy.deepcopy(HEALTHY)
    for path, value in changes.items():
        *folders, name = path.split("__")
        place = report
        for folder in folders:
            place = place[int(folder) if folder.isdigit() else folder]
        place[name] = value
    return report


def test_the_variables_are_those_of_the_page_and_of_the_code():
    root = pathlib.Path(__file__).parents[2]
    page = (root / "docs/env.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(KILN_\w+)`", page, re.MULTILINE)) == list(doctor._VARIABLES)
    code = (root / "jit/compile/settings.cpp").read_text(encoding="utf-8")
    assert sorted(re.findall(r'variable\("(KILN_\w+)"\)', code)) == list(doctor._VARIABLES)


def test_a_variable_that_nothing_reads_is_a_note(kiln_command):
    run = kiln_command("doctor", KILN_CACHEDIR="/x", KILN_LOG="error")
    (note,) = [line for line in run.stdout.splitlines() if "KILN_CACHEDIR" in line]
    assert note == (
        "note: KILN_CACHEDIR is set and has no effect, as Kiln has no such variable: docs/env.md "
        "lists them, and KILN_CACHE_DIR is the nearest"
    )
    assert doctor.unknown_variables(["KILN_LOG", "KILN_LGO", "XKILN_LOG"]) == ["KILN_LGO"]


def test_a_healthy_machine():
    assert doctor.judge(HEALTHY, requires_gpu=True) == ([], OK)
    assert doctor.notes_of(HEALTHY) == []
    assert doctor.nvrtc_verdict(HEALTHY) == "ok, not newer than the driver's CUDA 12.9"


@pytest.mark.parametrize(
    ("changes", "words", "code"),
    [
        (
            {"cache__layers__0__verdict": "is a file", "cache__layers__0__advice": "name another"},
            "the cache folder /c is a file: name another",
            CHECK_FAILED,
        ),
        (
            {"nvrtc__loaded": False, "nvrtc__problem": "none found: pip install it"},
            "no NVRTC: none found: pip install it",
            ENVIRONMENT,
        ),
        ({"devices__0__problem": "lost; reset it"}, "cuda:0 cannot be used: lost", CHECK_FAILED),
        ({"devices__0__compute_capability": "12.0"}, "cannot compile for cuda:0", CHECK_FAILED),
        ({"environment__KILN_TEMPLATE_DIR": "/nowhere"}, "KILN_TEMPLATE_DIR=/now", CHECK_FAILED),
        ({"environment__KILN_TUNING": "/nowhere"}, "KILN_TUNING is ignored: tuning", CHECK_FAILED),
    ],
)
def test_problems(changes, words, code):
    (problem,), found = doctor.judge(report_with(**changes), requires_gpu=False)
    assert problem.startswith(words) or words in problem
    assert found == code


def test_a_gpu_can_be_required():
    without = report_with(
        devices=[], driver={"found": False, "version": 0, "problem": "no driver: install one"}
    )
    assert doctor.judge(without, requires_gpu=False) == ([], OK)
    assert "install one" in doctor.notes_of(without)[0]
    assert doctor.judge(without, requires_gpu=True)[1] == ENVIRONMENT
    failing = report_with(devices=[], driver__problem="too old: update it")
    assert doctor.judge(failing, requires_gpu=False) == (["no GPU: too old: update it"], 1)


def test_an_nvrtc_whose_signal_handlers_stay_is_a_note():
    report = report_with(nvrtc__handles_signals=True)
    assert doctor.judge(report, requires_gpu=True) == ([], OK)
    assert any("SIGINT and SIGTERM" in note for note in doctor.notes_of(report))


def test_a_usable_folder_with_something_to_know_is_a_note():
    report = report_with(
        cache__layers__0__warning="it was created by the user eve (/tmp/c) in /tmp",
        cache__layers__0__advice="nothing is removed from it",
    )
    assert doctor.judge(report, requires_gpu=False) == ([], OK)
    assert doctor.notes_of(report) == [
        "the cache folder /c: nothing is removed from it",
        "the cache folder /c: it was created by the user eve (/tmp/c) in /tmp",
    ]


def test_nvrtc_beside_the_driver():
    newer = report_with(nvrtc__version="12.10")
    assert "newer than the driver's CUDA 12.9 but of its major" in doctor.nvrtc_verdict(newer)
    over = report_with(nvrtc__passed_over=["/x/libnvrtc.so.13: too new for the driver"])
    assert doctor.notes_of(over)[0].startswith("this NVRTC was passed over: /x/libnvrtc.so.13")
    assert "no driver" in doctor.nvrtc_verdict(report_with(driver__version=0))


def test_who_compiles_nothing_needs_no_nvrtc():
    report = report_with(nvrtc__loaded=False, environment__KILN_JIT="off")
    assert doctor.judge(report, requires_gpu=False) == ([], OK)
    assert "KILN_JIT=off" in doctor.notes_of(report)[0]


def test_the_whole_report(kiln_command, cache_dir):
    report = kiln_command("doctor", "--json").json()
    (layer,) = report["cache"]["layers"]
    assert (layer["path"], layer["verdict"], layer["owner"]) == (str(cache_dir), "ok", "")
    assert report["packages"]["numpy"] and report["python"].startswith("3.")
    assert report["nvrtc"]["verdict"].startswith("ok")
    text = kiln_command("doctor").stdout
    assert f"numpy {report['packages']['numpy']}" in text
    assert f"{cache_dir} (writable, not there yet): 0 kernels" in text
    assert "\x1b" not in text  # no colours but on a terminal
    assert "all checks passed" in text


def test_owner_and_mode_and_what_to_do(kiln_command, cache_dir):
    cache_dir.mkdir(mode=0o755)
    assert "mode 0755" in kiln_command("doctor").stdout
    cache_dir.chmod(0o777)
    run = kiln_command("doctor", "--json")
    assert run.code == CHECK_FAILED
    (problem,) = run.json()["problems"]
    assert "is writable by everybody" in problem and "chmod -R o-w" in problem
    assert run.json()["cache"]["layers"][0]["mode"] == "0777"


def test_a_folder_that_cannot_be_created(kiln_command, tmp_path):
    (tmp_path / "file").write_text("")
    run = kiln_command("doctor", "--json", KILN_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert run.code == CHECK_FAILED
    (problem,) = run.json()["problems"]
    assert "set KILN_CACHE_DIR" in problem or "correct KILN_CACHE_DIR" in problem


def test_nothing_is_imported_to_read_versions(environment):
    import subprocess
    import sys

    script = (
        "import json, sys; from kiln.cli import doctor; doctor.gather();"
        "print(json.dumps([n for n in ('torch', 'numpy', 'cupy') if n in sys.modules]))"
    )
    out = subprocess.check_output([sys.executable, "-c", script], env=environment)
    assert json.loads(out) == []


no_driver = pytest.mark.skipif(
    kiln.diagnose()["driver"]["found"], reason="a real driver: see tests/kernels/cuda"
)


@no_driver
def test_on_the_fake_driver(kiln_command, fake_driver):
    run = kiln_command("doctor", "--require-gpu", "--json", LD_LIBRARY_PATH=fake_driver)
    report = run.json()
    assert run.code == OK, report["problems"]
    assert [device["name"] for device in report["devices"]] == ["Fake GPU"] * 2
    assert report["nvrtc"]["verdict"] == "ok, not newer than the driver's CUDA 13.0"
    text = kiln_command("doctor", LD_LIBRARY_PATH=fake_driver).stdout
    assert (
        "gpu     cuda:1 Fake GPU, compute capability 9.0, 132 multiprocessors, 8.0 GiB: ok" in text
    )
