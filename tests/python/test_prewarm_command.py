"""`kiln prewarm`: its report, and specs that are broken."""

import json

import pytest
from conftest import ONE_KERNEL
from message_page import check

OK, CHECK_FAILED, USAGE = range(3)


def test_prewarm_twice_and_check(kiln_command, spec_file):
    arguments = ["prewarm", "--spec", spec_file, "--arch", "sm_90a", "--json"]
    assert kiln_command(*arguments, "--check").code == CHECK_FAILED
    first = kiln_command(*arguments)
    assert first.code == OK
    assert first.json()["compiled"] == 1
    assert "[1/1]" in first.stderr
    assert kiln_command(*arguments).json()["cached"] == 1
    assert kiln_command(*arguments, "--check").code == OK
    assert kiln_command(*arguments, "--recompile").json()["compiled"] == 1


def test_prewarm_prints_a_table(kiln_command, spec_file):
    run = kiln_command("prewarm", "--spec", spec_file, "--arch", "sm_90", "--jobs", 1)
    assert run.code == OK
    assert "1 kernels: 1 compiled, 0 cached" in run.stdout


def test_check_says_what_is_missing(kiln_command, spec_file):
    arguments = ["prewarm", "--spec", spec_file, "--arch", "sm_90", "--check"]
    run = kiln_command(*arguments)
    assert run.code == CHECK_FAILED
    (row,) = [line for line in run.stdout.splitlines() if line.startswith("gemm bfloat16 nt")]
    assert "tile 32x64x128x4" in row and "missing" in row
    assert len(row.split()[-1]) == 64  # the key
    assert "1 missing" in run.stdout and "without --check" in run.stdout
    kiln_command(*arguments[:-1])
    complete = kiln_command(*arguments)
    assert complete.code == OK
    assert complete.stdout.startswith("1 kernels: 0 compiled, 1 cached")


def test_prewarm_reads_stdin(kiln_command):
    text = json.dumps([ONE_KERNEL])
    run = kiln_command("prewarm", "--spec", "-", "--arch", "sm_90", "--check", "--json", stdin=text)
    assert run.json()["missing"] == 1


def test_no_spec_compiles_nothing(kiln_command):
    for flags in ([], ["--check"]):
        run = kiln_command("prewarm", "--spec", "-", "--arch", "sm_90", *flags, stdin="[]")
        assert run.code == OK
        assert run.stdout.startswith("0 kernels: 0 compiled")
        assert run.stderr == "kiln: the specs name no kernel, so there is nothing to compile\n"


@pytest.mark.parametrize("text", ["{", "3", '{"op": "gemm", "blok_m": 16}', '{"op": "conv"}'])
def test_broken_specs_are_usage_errors(kiln_command, tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    run = kiln_command("prewarm", "--spec", path, "--arch", "sm_90")
    assert run.code == USAGE
    assert run.stderr.startswith("kiln: ")
    assert "Traceback" not in run.stderr


def test_a_bad_spec_is_named_by_its_place(kiln_command, tmp_path):
    bad = {**ONE_KERNEL, "blok_m": 16}
    specs = [{**ONE_KERNEL, "layout": layout} for layout in ("nn", "nt", "tn")] + [bad]
    text = "spec: unknown field 'blok_m'; docs/prewarm.md lists the fields"
    path = tmp_path / "specs.json"
    for content, place in (
        ("\n".join(map(json.dumps, specs)), f"line 4 of {path}"),
        ("\n" + json.dumps(bad) + "\n" + json.dumps(bad), f"line 2 of {path}"),
        (json.dumps(specs), f"entry 4 of {path}"),
        (json.dumps(bad, indent=1), str(path)),
    ):
        path.write_text(content)
        for command in (["prewarm"], ["cache", "export", tmp_path / "x.tar"]):
            run = kiln_command(*command, "--spec", path, "--arch", "sm_90")
            assert (run.code, run.stderr) == (USAGE, f"kiln: {place}: {text}\n")
    run = kiln_command("prewarm", "--spec", path, "--arch", "sm_1")
    assert (run.code, run.stderr.startswith("kiln: unknown arch 'sm_1'")) == (USAGE, True)
    path.write_text("3")
    run = kiln_command("prewarm", "--spec", path, "--arch", "sm_90")
    text = f"{path} must hold a spec, which is a JSON object, or an array of them; see docs/prewarm"
    assert run.code == USAGE
    check(ValueError(run.stderr), ValueError, text)
