"""kiln.emulate: packing arguments, faults, launches; test_emulate_command.py has the command."""

import os
import signal
import threading

import kiln
import numpy as np
import pytest
import torch
from message_page import check

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"

# out[i] = in[i] * factor + extra for the threads of a grid; 32-bit.
SCALE = (
    HEADER
    + """
.visible .entry scale(
  .param .u64 out, .param .u64 in, .param .u32 factor, .param .align 8 .b8 extra[16]
)
{
  .reg .b32 %r<8>;
  .reg .b64 %d<8>;
  ld.param.u64 %d1, [out];
  ld.param.u64 %d2, [in];
  ld.param.u32 %r1, [factor];
  ld.param.u32 %r2, [extra+8];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r5, %r3, %r4, %r5;
  mul.wide.u32 %d3, %r5, 4;
  add.s64 %d4, %d2, %d3;
  ld.global.u32 %r6, [%d4];
  mad.lo.s32 %r6, %r6, %r1, %r2;
  add.s64 %d4, %d1, %d3;
  st.global.u32 [%d4], %r6;
  ret;
}
"""
)
STRUCT = np.array([0, 0, 7, 0], np.uint32).tobytes()
TWO = HEADER + "\n".join(f".visible .entry {name}() {{ ret; }}" for name in ("first", "second"))
LOOP = HEADER + ".visible .entry loop() { L: bra L; }\n"


def iota(count):
    return np.arange(count, dtype=np.uint32)


def scale(out, source, factor=3, extra=STRUCT, **options):
    options = {"grid": 2, "block": 32, **options}
    kiln.emulate(SCALE, arguments=[out, source, factor, extra], **options)


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("seed", [0, 5])
def test_a_kernel_runs_in_place(schedule, seed):
    out = np.zeros(64, np.uint32)
    scale(out, iota(64), schedule=schedule, seed=seed, arch="sm_90a")
    assert np.array_equal(out, iota(64) * 3 + 7)


@pytest.mark.parametrize("factor", [3, np.uint32(3), np.int32(3), b"\3\0\0\0"])
def test_scalars_of_several_kinds(factor):
    out = np.zeros(64, np.uint32)
    scale(out, iota(64), factor)
    assert out[10] == 37


def test_text_paths_and_bytes(tmp_path):
    path = tmp_path / "scale.ptx"
    path.write_text(SCALE)
    for ptx in (path, str(path), SCALE.encode() + b"\0"):
        out = np.zeros(64, np.uint32)
        kiln.emulate(ptx, grid=(2, 1), block=[32], arguments=[out, iota(64), 1, STRUCT])
        assert out[63] == 70
    with pytest.raises(FileNotFoundError):
        kiln.emulate("nowhere.ptx")
    with pytest.raises(TypeError, match="text or a path, got int"):
        kiln.emulate(3)
    path.write_text("\n")
    for empty in ("", " \n", b"", b"\0", path):
        with pytest.raises(ValueError) as raised:
            kiln.emulate(empty)
        check(raised.value, ValueError, "emulate: ptx is empty; give the text of a PTX module")


def test_torch_tensors_views_and_other_buffers():
    out = torch.zeros(64, dtype=torch.int32)
    scale(out, iota(128)[64:])
    assert out[1] == 65 * 3 + 7
    # A pointer that hides in a number is known through buffers=.
    source, out = iota(64), np.zeros(64, np.uint32)
    kiln.emulate(
        SCALE,
        grid=2,
        arguments=[out, np.uint64(source.ctypes.data), 1, STRUCT],
        buffers=[source],
    )
    assert out[5] == 12


def test_entries_by_name():
    kiln.emulate(TWO, entry="second")
    with pytest.raises(ValueError, match="name the kernel with entry=; the module has first, sec"):
        kiln.emulate(TWO)
    with pytest.raises(ValueError, match="no kernel 'third'; it has first, second"):
        kiln.emulate(TWO, entry="third")


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ([iota(4)], ValueError, r"takes 4 arguments \(.u64 out, .u64 in, .u32 factor"),
        ([iota(4), iota(4), np.uint16(1), STRUCT], ValueError, "4 bytes, as .u32.*got 2"),
        ([iota(4), iota(4), iota(1), STRUCT], TypeError, "argument 2 .factor.*no pointer"),
        ([iota(4), iota(4), 1.5, STRUCT], TypeError, "is a .u32; pass a whole number"),
        ([iota(4), iota(4), 1 << 32, STRUCT], ValueError, "4294967296 does not fit .u32"),
        ([iota(4), iota(4), 1, STRUCT[:8]], ValueError, "must have 16 bytes.*got 8"),
        ([iota(4), iota(4), 1, 5], TypeError, "a struct of 16 bytes; pass bytes"),
        ([iota(4), "in", 1, STRUCT], TypeError, "must be a NumPy array.*got str"),
        ([iota(4), np.array([None]), 1, STRUCT], TypeError, "Python objects"),
    ],
)
def test_arguments_are_checked(arguments, kind, text):
    with pytest.raises(kind, match=text):
        kiln.emulate(SCALE, arguments=arguments)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"grid": 0}, "grid must be"),
        ({"block": (1, 1, 1, 1)}, "block must be"),
        ({"cluster": ("a",)}, "cluster must be"),
        ({"schedule": "lazy"}, "'late' or 'eager'"),
        ({"arch": "sm_12x"}, "does not model 'sm_12x'"),
        ({"seed": -1}, "seed=N"),
    ],
)
def test_options_are_checked(options, text):
    with pytest.raises(ValueError, match=text):
        scale(iota(64), iota(64), **options)


@pytest.mark.parametrize("size", [-1, 1 << 32, 1.5, None])
def test_shared_bytes_are_checked(size):
    with pytest.raises(ValueError) as raised:
        scale(iota(64), iota(64), shared_bytes=size)
    text = f"emulate: shared_bytes must be 0 or more and below 2^32, got {size}"
    check(raised.value, ValueError, text)


def test_a_fault_says_where():
    out = np.zeros(60, np.uint32)
    with pytest.raises(kiln.EmulatorError, match="out-of-bounds access") as error:
        scale(out, iota(64))
    fault = error.value
    assert isinstance(fault, kiln.Error)
    assert (fault.fault, fault.kernel) == ("out-of-bounds access", "scale")
    assert (fault.block, fault.warp, fault.lane) == ((1, 0, 0), 0, 28)
    assert SCALE.splitlines()[fault.ptx_line - 1].strip().startswith("st.global")
    assert fault.instruction.startswith("st.global")
    assert fault.source is None


def test_reads_and_writes_are_told_apart():
    source = iota(64)
    source.flags.writeable = False
    scale(np.zeros(64, np.uint32), source)
    with pytest.raises(kiln.EmulatorError) as error:
        scale(source, iota(64))
    assert error.value.fault == "out-of-bounds access"
    with pytest.raises(kiln.EmulatorError):
        scale(None, iota(64))


@pytest.mark.parametrize(
    ("ptx", "fault"),
    [
        (SCALE[: len(SCALE) // 2] + "\n", "bad PTX"),
        (SCALE.replace("mad.lo.s32 %r6", "frobnicate.s32 %r6"), "unknown instruction"),
    ],
)
def test_bad_modules(ptx, fault):
    with pytest.raises(kiln.EmulatorError) as error:
        kiln.emulate(ptx, arguments=[iota(64), iota(64), 1, STRUCT])
    assert error.value.fault == fault
    assert error.value.ptx_line


def test_bad_launches():
    for options in ({"block": 1025}, {"shared_bytes": 1 << 20}, {"arch": "sm_80", "cluster": 2}):
        with pytest.raises(kiln.EmulatorError) as error:
            scale(iota(64), iota(64), **options)
        assert error.value.fault == "bad launch"


def test_a_step_limit_ends_what_does_not():
    with pytest.raises(kiln.EmulatorError) as error:
        kiln.emulate(LOOP, step_limit=1000)
    assert error.value.fault == "step limit reached"


def test_a_trace_prints_one_thread(capfd):
    scale(np.zeros(64, np.uint32), iota(64), trace=(1, 4))
    lines = capfd.readouterr().err.splitlines()
    assert sum("st.global" in line for line in lines) == 1
    assert len(lines) >= 14


# Copies the box at (x, y) of a tensor map's array to `out`, a thread an element.
TILE = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry tile(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 x, .param .u32 y)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  .shared .align 128 .b8 box[512];
  .shared .align 8 .b64 full;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, full;
  mov.u32 %r2, box;
  ld.param.u32 %r3, [x];
  ld.param.u32 %r4, [y];
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra READY;
  mbarrier.init.shared::cta.b64 [%r1], 1;
  fence.proxy.async.shared::cta;
READY:
  bar.sync 0;
  @%p0 bra WAIT;
  mbarrier.arrive.expect_tx.shared::cta.b64 %d0, [%r1], 512;
  mov.b64 %d1, map;
  cvta.param.u64 %d1, %d1;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r2], [%d1, {%r3, %r4}], [%r1];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
  @!%p1 bra WAIT;
  mad.lo.u32 %r5, %r0, 4, %r2;
  ld.shared.u32 %r6, [%r5];
  ld.param.u64 %d2, [out];
  mul.wide.u32 %d3, %r0, 4;
  add.s64 %d2, %d2, %d3;
  st.global.u32 [%d2], %r6;
  ret;
}
"""


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_tensor_maps(schedule):
    array = np.arange(24 * 32, dtype=np.float32).reshape(24, 32)
    out = np.full((8, 16), -1, np.float32)
    tensor_map = kiln.TensorMap(array, (8, 16))
    options = {"entry": "tile", "block": 128, "schedule": schedule}
    kiln.emulate(TILE, arguments=[tensor_map, out, 4, 8], **options)
    assert np.array_equal(out, array[8:16, 4:20])
    kiln.emulate(TILE, arguments=[tensor_map, out, 24, 20], **options)
    want = np.zeros((8, 16), np.float32)  # beyond the array
    want[:4, :8] = array[20:, 24:]
    assert np.array_equal(out, want)
    awaits_too_much = TILE.replace("[%r1], 512", "[%r1], 513")
    with pytest.raises(kiln.EmulatorError) as error:
        kiln.emulate(awaits_too_much, arguments=[tensor_map, out, 0, 0], **options)
    assert error.value.fault == "deadlock"


@pytest.mark.parametrize(
    ("array", "box", "options"),
    [
        (np.zeros((4, 4), np.float32).T[:, ::2], (2, 2), {}),
        (np.zeros((4, 3), np.float32), (2, 2), {}),  # pitch of 12 bytes
        (np.zeros((4, 4), np.float32), (2, 512), {}),
        (np.zeros((4, 4), np.float32), (2,), {}),
        (np.zeros((4, 4), np.float32), (2, 2), {"swizzle": 16}),
        (np.zeros((4, 4), np.int8), (2, 2), {}),
        (np.float32(1), (), {}),
    ],
)
def test_tensor_maps_are_checked(array, box, options):
    with pytest.raises(ValueError):
        kiln.TensorMap(array, box, **options)


SPIN = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 flag) {
  .reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p;
  ld.param.u64 %rd1, [flag];
AGAIN:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p, %r1, 0;
  @%p bra AGAIN;
  ret;
}
"""


@pytest.mark.parametrize("blocks", [1, 3, 500])
def test_ctrl_c_ends_a_launch_that_never_would(blocks):
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        kiln.emulate(SPIN, grid=(blocks, 1, 1), arguments=[np.zeros(1, np.uint32)])
