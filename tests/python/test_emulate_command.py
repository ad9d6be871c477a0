"""The command `kiln emulate`: buffers from flags and files, reports, faults."""

import json

import numpy as np
import pytest
from kiln.cli.buffers import parse_argument
from message_page import check
from test_emulate import HEADER, SCALE, iota


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


COPY = (
    HEADER
    + """
.visible .entry copy(.param .u64 to, .param .u64 from)
{
  .reg .b32 %r<2>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [to];
  ld.param.u64 %d1, [from];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %d2, %r0, 4;
  add.s64 %d0, %d0, %d2;
  add.s64 %d1, %d1, %d2;
  ld.global.b32 %r1, [%d1];
  st.global.b32 [%d0], %r1;
  ret;
}
"""
)


@pytest.fixture
def copy_file(tmp_path):
    path = tmp_path / "copy.ptx"
    path.write_text(COPY)
    return path


def test_files_are_numbers_in_the_byte_order_of_the_device(kiln_command, copy_file, tmp_path):
    np.save(tmp_path / "big.npy", np.arange(32, dtype=">f4"))
    np.save(tmp_path / "zeros.npy", np.zeros(32, np.float32))
    out = tmp_path / "no suffix"
    arguments = ["--arg", f"{tmp_path}/zeros.npy:{out}", "--arg", tmp_path / "big.npy"]
    run = kiln_command("emulate", copy_file, *arguments)
    assert run.code == 0, run.stderr
    assert np.array_equal(np.load(out), np.arange(32, dtype=np.float32))
    assert not (tmp_path / "no suffix.npy").exists()


def test_files_that_hold_no_numbers(kiln_command, copy_file, tmp_path):
    path = tmp_path / "bad.npy"
    for array, text in (
        (np.array(["a", "bc"]), f"{path} holds <U2; a buffer takes an array of numbers"),
        (np.array([None]), f"{path} holds Python objects; a buffer takes an array of numbers"),
        (None, f"{path} is no NumPy file, or is cut off: "),
        (b"", f"{path} is no NumPy file, or is cut off: "),
    ):
        if isinstance(array, np.ndarray):
            np.save(path, array, allow_pickle=True)
        else:
            path.write_bytes(b"some text, and no array" if array is None else array)
        run = kiln_command("emulate", copy_file, "--arg", path, "--arg", "f32[32]=ones")
        refused(run, 2, text)
        assert "allow_pickle" not in run.stderr


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("s32[4]=9999999999", "--arg: 9999999999 does not fit s32"),
        ("u8[4]=-1", "--arg: -1 does not fit u8"),
        ("u64[4]=18446744073709551616", "--arg: 18446744073709551616 does not fit u64"),
        ("u64=18446744073709551616", "--arg: 18446744073709551616 does not fit u64"),
        ("f32[32]=1e50", "--arg: 1e50 does not fit f32"),
        ("f64=1e400", "--arg: 1e400 does not fit f64"),
        ("bf16=3.4e38", "--arg: 3.4e38 does not fit bf16"),
        ("f16[70000]=iota", "--arg: 69999 does not fit f16"),
        ("hex=0", "--arg hex=0: must be pairs of hex digits, such as hex=00ff12"),
        ("x.npy:", "--arg x.npy:: must be TYPE[N]=random|zeros|ones|iota|NUMBER, TYPE=NUMBER"),
        ("x.npy:/", "--arg x.npy:/: / is a folder; give the path of a file"),
    ],
)
def test_values_fit_their_type(argument, text, recwarn):
    with pytest.raises(ValueError) as raised:
        parse_argument(argument, 0)
    check(raised.value, ValueError, text)
    assert not recwarn.list


def test_a_trace_lies_within_the_launch(kiln_command, copy_file):
    arguments = ["--arg", "f32[32]=zeros", "--arg", "f32[32]=ones", "--grid", "2"]
    for trace in ("2:0", "1:32"):
        text = f"trace must name a block below 2 and a thread below 32, got {trace}"
        refused(kiln_command("emulate", copy_file, *arguments, "--trace", trace), 2, text)
    assert "st.global" in kiln_command("emulate", copy_file, *arguments, "--trace", "1:31").stderr


def test_infinities_are_json(kiln_command, copy_file, tmp_path):
    path = tmp_path / "infinite.npy"
    np.save(path, np.array([np.inf, -np.inf, np.nan, *range(29)], np.float32))
    arguments = ["--arg", "f32[32]=zeros", "--arg", path, "--json"]
    run = kiln_command("emulate", copy_file, *arguments)
    assert (run.code, run.stderr) == (0, "")
    # Whoever reads constants gets None, so that the words of Python's own form would show.
    out = json.loads(run.stdout, parse_constant=lambda word: None)["buffers"][0]
    assert [out[name] for name in ("min", "max", "mean", "nan")] == ["-inf", "inf", "nan", 1]
    assert out["first"] == ["inf", "-inf", "nan", 0.0]
