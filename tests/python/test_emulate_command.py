"""The command `kiln emulate`: buffers from flags and files, reports, faults."""

import json

import numpy as np
import pytest
from kiln.cli.buffers import parse_argument
from message_page import check
from test_emulate import SCALE, iota


@pytest.fixture
def scale_file(tmp_path):
    path = tmp_path / "scale.ptx"
    # A plain last parameter: structs are bytes, which have no SPEC.
    text = SCALE.replace(".param .align 8 .b8 extra[16]", ".param .u32 extra")
    path.write_text(text.replace("[extra+8]", "[extra]"))
    return path


def test_the_command_summarises_buffers(kiln_command, scale_file):
    arguments = ["--arg", "u32[64]=zeros", "--arg", "u32[64]=iota", "--arg", "u32=2"]
    arguments += ["--arg", "u32=1", "--grid", "2", "--block", "32,1"]
    done = kiln_command("emulate", scale_file, *arguments)
    assert done.code == 0, done.stdout + done.stderr
    assert "1 3 5 7" in done.stdout and done.stdout.splitlines()[-1].startswith("ok: ")
    report = kiln_command("emulate", scale_file, *arguments, "--json").json()
    out, source = report["buffers"]
    assert report["fault"] is None and report["seconds"] > 0
    assert (out["type"], out["shape"], out["changed"]) == ("u32", [64], 64)
    assert (out["min"], out["max"], out["mean"], out["nan"]) == (1, 127, 64.0, 0)
    assert out["first"] == [1, 3, 5, 7]
    assert source["changed"] == 0


def test_the_command_reads_and_writes_files(kiln_command, scale_file, tmp_path):
    np.save(tmp_path / "in.npy", iota(32))
    np.save(tmp_path / "zeros.npy", np.zeros(32, np.uint32))
    out = tmp_path / "out.npy"
    arguments = ["--arg", f"{tmp_path}/zeros.npy:{out}", "--arg", tmp_path / "in.npy"]
    done = kiln_command("emulate", scale_file, *arguments, "--arg", "u32=5", "--arg", "u32=0")
    assert done.code == 0, done.stdout + done.stderr
    assert np.array_equal(np.load(out), iota(32) * 5)
    assert not np.load(tmp_path / "zeros.npy").any()


def test_the_command_reports_faults(kiln_command, scale_file):
    arguments = ["--arg", "u32[8]=zeros", "--arg", "u32[32]=ones", "--arg", "u32=1"]
    arguments += ["--arg", "u32=1"]
    done = kiln_command("emulate", scale_file, *arguments, "--trace", "0:3")
    assert done.code == 1
    assert "out-of-bounds access" in done.stdout and "kernel scale" in done.stdout
    assert "add.s64" in done.stderr
    done = kiln_command("emulate", scale_file, *arguments, "--json", "--no-checks", "--seed", "3")
    assert done.code == 1
    assert done.json()["fault"]["lane"] == 8


@pytest.mark.parametrize(
    "arguments",
    [
        ["--grid", "0"],
        ["--trace", "5"],
        ["--schedule", "lazy"],
        ["--arg", "u33[4]=zeros"],
        ["--arg", "u32[4]=many"],
        ["--arg", "u8=256"],
        ["--arg", "what"],
        ["--arg", "none.npy"],
        [],  # too few arguments
    ],
)
def test_usage_of_the_command(kiln_command, scale_file, arguments):
    done = kiln_command("emulate", scale_file, *arguments)
    assert done.code == 2
    assert done.stdout == "" and done.stderr


def test_buffers_of_every_type():
    for kind in ("f16", "f32", "f64", "u8", "u64", "s8", "i32", "s64", "bf16"):
        for fill in ("random", "zeros", "ones", "iota", "3"):
            buffer = parse_argument(f"{kind}[4,8]={fill}", 0)
            summary = buffer.summary()
            json.dumps(summary)
            assert summary["shape"] == [4, 8] and summary["nan"] == 0
            assert fill == "random" or summary["first"][1] == {"zeros": 0, "3": 3}.get(fill, 1)
    assert parse_argument("bf16=1.5", 0).value == 0x3FC0
    assert parse_argument("s32=-5", 0).value == np.int32(-5)
    assert parse_argument("null", 0).value is None
    assert parse_argument("hex=00ff", 0).value == b"\0\xff"


def refused(run, code, text):
    assert (run.code, run.stdout) == (code, "")
    check(ValueError(run.stderr), ValueError, text)
    assert run.stderr.count("\n") == 1, run.stderr


@pytest.mark.parametrize("count", ["9" * 12, "9" * 30, "4294967296,4294967296"])
def test_a_buffer_that_no_memory_holds(kiln_command, scale_file, count):
    run = kiln_command("emulate", scale_file, "--arg", f"f32[{count}]=zeros")
    refused(run, 4, "the buffer does not fit in this machine's memory; give a smaller one")


def test_the_command_takes_text_as_text(kiln_command, scale_file, tmp_path):
    path = tmp_path / "other.ptx"
    path.write_text("")
    refused(kiln_command("emulate", path), 2, f"{path} is empty; give a PTX file")
    path.write_bytes(b"\x7fELF\xff\xfe")
    refused(kiln_command("emulate", path), 2, f"{path} is not text; give a PTX file and not a")
    path.write_text(str(scale_file))  # no path is read from it
    run = kiln_command("emulate", path)
    assert run.code == 1 and "bad PTX" in run.stdout, run.stderr
