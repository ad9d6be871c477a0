"""`kiln inspect`: two kernels side by side, and machine code where a disassembler is there."""

import json
import os
import stat

import pytest
from kiln.cli import kernel_diff, sass
from kiln.cli.output import Unavailable

OK, CHECK_FAILED, USAGE, COMPILE_FAILED, ENVIRONMENT = range(5)
ROWS = ["16x64x64x6", "64x64x64x6"]
DIFF = ["inspect", "gemm", "--arch", "sm_80", "--diff", *ROWS]
# A disassembler's listing, shortened.
SASS = """\
.text.kiln_kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R64, SR_TID.X ;
.L_x_33:
        /*0050*/                   SHFL.IDX PT, R0, R0, RZ, 0x1f ;
        /*0090*/              @!P0 BRA `(.L_x_1) ;
        /*00a0*/              @P1 HMMA.16816.F32.BF16 R4, R8, R12, R4 ; /* 0x00001fff00007589 */
                                                                        /* 0x000e6400000e0000 */
        /*10b0*/             @!UP0 HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
"""


@pytest.fixture
def disassembler(tmp_path):
    """Folders for PATH whose nvdisasm prints SASS, or fails."""

    def make(script):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        tool = folder / "nvdisasm"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        return f"{folder}:/usr/bin:/bin"

    (tmp_path / "sass").write_text(SASS)
    return make


def test_opcodes_are_counted():
    assert sass.count_opcodes(SASS) == {"HMMA": 2, "LDC": 1, "S2R": 1, "SHFL": 1, "BRA": 1}
    counts = kernel_diff.opcode_counts(SASS, SASS.replace("HMMA", "FFMA"))
    assert list(counts.items())[:2] == [("HMMA", [2, 0]), ("FFMA", [0, 2])]
    assert counts["LDC"] == [1, 1]


def test_resources_side_by_side(kiln_command):
    run = kiln_command(*DIFF)
    assert run.code == OK, run.stderr
    assert ROWS[0] in run.stdout and ROWS[1] in run.stdout
    marked = [line for line in run.stdout.splitlines() if line.startswith("*")]
    assert any("registers" in line for line in marked)
    assert not any("  path" in line for line in marked)  # both are portable
    report = kiln_command(*DIFF, "--json").json()
    assert [kernel["config"] for kernel in report["kernels"]] == ROWS
    one, two = report["differences"]["cubin_bytes"]
    assert one != two and "path" not in report["differences"]
    assert "cubin" not in report["kernels"][0]


@pytest.mark.parametrize("text", ["source", "ptx"])
def test_unified_diffs(kiln_command, text):
    out = kiln_command(*DIFF, f"--{text}").stdout
    assert out.startswith(f"--- gemm bfloat16 nt, tile {ROWS[0]}\n+++ ")
    assert "\n@@ " in out and "\n-" in out and "\n+" in out
    assert kiln_command(*DIFF, f"--{text}", "--json").json()["diff"] == out.rstrip("\n")
    same = ["inspect", "gemm", "--arch", "sm_80", "--diff", ROWS[0], ROWS[0], f"--{text}"]
    assert kiln_command(*same).stdout == f"the {text} of both is the same\n"


def test_an_epilogue_is_an_expression_an_object_or_null(kiln_command):
    row = ["inspect", "gemm", "--arch", "sm_80", "--block-m", 16, "--block-n", 64, "--json"]
    named = {"name": "plus", "params": [["a", "f32"]], "value": "acc + a"}
    (kernel,) = kiln_command(*row, "--epilogue", json.dumps(named)).json()
    assert kernel["spec"]["epilogue"]["params"] == [["a", "f32"]]
    assert "acc + a" in kernel["source"]
    (kernel,) = kiln_command(*row, "--epilogue", "acc * acc").json()
    assert kernel["spec"]["epilogue"] == "acc * acc"
    (kernel,) = kiln_command(*row, "--epilogue", "null").json()
    assert kernel["spec"].get("epilogue") is None
    wrong = kiln_command(*row, "--epilogue", '{"val": "acc"}')
    assert wrong.code == USAGE and "unknown field 'val'" in wrong.stderr


def test_rows_are_chosen_by_flags(kiln_command):
    def tiles(*flags):
        kernels = kiln_command(
            "inspect", "quantize", "--arch", "sm_90a", "--source", "--json", *flags
        )
        return [
            tuple(k["spec"][name] for name in ("lanes", "turns", "keeps")) for k in kernels.json()
        ]

    every = tiles()
    assert {(turns, keeps) for _, turns, keeps in every} >= {(False, False), (True, True)}
    assert tiles("--turns") == [tile for tile in every if tile[1]]
    assert tiles("--no-turns") == [tile for tile in every if not tile[1]]
    assert tiles("--turns", "--no-keeps") == [tile for tile in every if tile[1:] == (True, False)]


def test_two_spec_files(kiln_command, tmp_path):
    paths = []
    for name, activation in (("a", None), ("b", "relu")):
        path = tmp_path / f"{name}.json"
        spec = {"op": "gemm", "block_m": 16, "block_n": 64, "activation": activation}
        path.write_text(json.dumps(spec))
        paths.append(path)
    out = kiln_command("inspect", "diff", *paths, "--arch", "sm_80", "--source").stdout
    assert "relu" in out.lower()
    paths[1].write_text(json.dumps({"op": "gemm"}))
    run = kiln_command("inspect", "diff", *paths, "--arch", "sm_80")
    assert run.code == USAGE
    assert "one row" in run.stderr and "64x64x64x6" in run.stderr
    for broken in ("{", "[]"):
        paths[1].write_text(broken)
        run = kiln_command("inspect", "diff", *paths, "--arch", "sm_80")
        assert run.code == USAGE and str(paths[1]) in run.stderr


def test_a_tile_that_is_none(kiln_command):
    run = kiln_command("inspect", "gemm", "--arch", "sm_80", "--diff", ROWS[0], "7x7")
    assert run.code == USAGE
    assert "'7x7' names 0 of them" in run.stderr and ROWS[1] in run.stderr


FLAGS = ["inspect", "gemm", "--arch", "sm_80", "--block-m", "16", "--block-n", "64"]


def test_machine_code(kiln_command, disassembler, tmp_path):
    path = disassembler(f'test "$1" = --print-code && cat {tmp_path}/sass')
    run = kiln_command(*FLAGS, "--sass", PATH=path)
    assert run.code == OK, run.stderr
    assert "HMMA.16816.F32.BF16" in run.stdout
    (kernel,) = kiln_command(*FLAGS, "--sass", "--json", PATH=path).json()
    assert kernel["sass"] == SASS
    report = kiln_command(*DIFF, "--sass", "--json", PATH=path).json()
    assert report["opcodes"]["HMMA"] == [2, 2]
    table = kiln_command(*DIFF, "--sass", PATH=path).stdout
    assert "opcode" in table and "HMMA" in table


def test_a_disassembler_that_fails_is_named(kiln_command, disassembler):
    run = kiln_command(*FLAGS, "--sass", PATH=disassembler("echo too new >&2; exit 3"))
    assert run.code == ENVIRONMENT
    assert "nvdisasm cannot read this kernel (too new)" in run.stderr
    assert "pip install -U" in run.stderr


def test_no_disassembler_is_the_environments(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sass, "_folders", lambda: iter(()))
    with pytest.raises(Unavailable, match="pip install nvidia-cuda-nvdisasm"):
        sass.find_disassembler()


def test_pips_disassembler_is_found(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia" / "cu13" / "bin" / "cuobjdump"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sass._site, "nvidia_folders", lambda: [str(tmp_path)])
    if not os.path.exists("/usr/local/cuda/bin/nvdisasm"):
        assert sass.find_disassembler() == str(tool)


def test_the_cubin_is_there_for_programs():
    import kiln

    (kernel,) = kiln.inspect({"op": "gemm", "block_m": 16, "block_n": 64}, "sm_80")
    assert kernel["cubin"][:4] == b"\x7fELF"
    assert len(kernel["cubin"]) == kernel["cubin_bytes"]
