"""Kernels that know nothing of Kiln: plain CUDA with CUDA's own headers, compiled by nvcc
(foreign/compile.sh), against NumPy. Reads as a user of kiln.emulate would write it."""

import math
import pathlib
import re

import kiln
import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parent / "foreign"
ORDERS = [("late", 0), ("late", 3), ("eager", 0), ("eager", 7)]

pytestmark = pytest.mark.parametrize(
    "order", [dict(schedule=schedule, seed=seed) for schedule, seed in ORDERS], ids=str
)


def ptx(name):
    return (FOLDER / f"{name}.ptx").read_text()


def random(seed):
    return np.random.default_rng(seed)


# ------------------------------------------------------------ reduce.cu: plain, and with -lineinfo

LINES = pytest.mark.parametrize("module", ["reduce", "reduce_lines"])


@LINES
def test_sums_by_shuffles_and_dynamic_shared_memory(module, order):
    values = random(1).standard_normal(1000).astype(np.float32)
    out = np.full(3, np.nan, np.float32)
    kiln.emulate(ptx(module), entry="block_sums", grid=3, block=96, shared_bytes=12,
                 arguments=[values, out, 1000], **order)  # fmt: skip
    owner = np.arange(1000) // 96 % 3
    want = [values[owner == block].sum(dtype=np.float64) for block in range(3)]
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


@LINES
def test_a_scan_by_cooperative_groups(module, order):
    values = random(2).integers(0, 9, 128).astype(np.int32)
    out = np.zeros(128, np.int32)
    kiln.emulate(ptx(module), entry="tile_scan", grid=2, block=64, arguments=[values, out], **order)
    tiles = values.reshape(-1, 8)
    want = tiles.cumsum(1) + 1000 * tiles.max(1)[:, None] + 100000 * (tiles == 0).any(1)[:, None]
    assert np.array_equal(out, want.ravel())


@LINES
def test_a_histogram_by_atomics(module, order):
    values = random(3).integers(0, 40, 1500).astype(np.uint8)
    bins, odd = np.zeros(256, np.uint32), np.zeros(1, np.uint64)
    kiln.emulate(ptx(module), entry="histogram", grid=4, block=128,
                 arguments=[values, bins, 1500, odd], **order)  # fmt: skip
    assert np.array_equal(bins, np.bincount(values, minlength=256))
    assert odd[0] == (values % 2).sum()


@LINES
def test_a_maximum_by_compare_and_swap(module, order):
    values = random(4).random(300).astype(np.float32)
    out = np.zeros(1, np.float32)
    kiln.emulate(ptx(module), entry="float_max", grid=3, block=128, arguments=[values, out, 300],
                 **order)  # fmt: skip
    assert out[0] == values.max()


@LINES
@pytest.mark.parametrize("blocks", [1, 7, 12])
def test_blocks_that_wait_for_each_other(module, order, blocks):
    rounds = 3
    values = np.zeros((rounds + 1, blocks), np.uint32)
    values[0] = np.arange(blocks)
    ticket = np.zeros(1, np.uint32)
    kiln.emulate(ptx(module), entry="grid_rounds", grid=blocks, block=64,
                 arguments=[values, ticket, rounds], **order)  # fmt: skip
    for before, after in zip(values, values[1:]):
        assert np.array_equal(after, before.sum() + np.arange(blocks))


# ---------------------------------------------------------------------------------- numbers.cu


def bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(values, mode):
    bits = values.astype(np.float32).view(np.uint32)
    if mode == "nearest":
        bits = bits + 0x7FFF + (bits >> 16 & 1)
    return (bits >> 16).astype(np.uint16)


def test_halves(order):
    pairs = 100
    x = random(5).standard_normal(2 * pairs).astype(np.float16)
    out = np.zeros(2 * pairs, np.float16)
    rounded = np.zeros(2 * pairs, np.uint16)
    kiln.emulate(ptx("numbers"), entry="halves", grid=2, block=64,
                 arguments=[x, out, rounded, np.array([0.75], np.float32), pairs],
                 **order)  # fmt: skip
    low = np.repeat(x[::2], 2).astype(np.float64)
    y = (x.astype(np.float64) * 0.75 + low).astype(np.float16)
    y = np.maximum(y, -x).astype(np.float64)
    want = y + np.exp2(np.minimum(x, 1.0).astype(np.float64))
    np.testing.assert_allclose(out, want, rtol=2e-3, atol=2e-3)
    nearest = to_bf16(x[::2].astype(np.float32) * np.float32(1.01), "nearest")
    assert np.array_equal(rounded[::2], nearest)
    product = bf16(to_bf16(x[1::2].astype(np.float32), "zero")) * np.float32(3)
    assert np.array_equal(rounded[1::2], to_bf16(product, "nearest"))


def signed(value, bits=64):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def wide_integers(x, y):
    """One thread's eight results, in Python's integers."""
    ux, uy = x & (1 << 64) - 1, y & (1 << 64) - 1
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else -1
    first = (ux & -ux).bit_length()
    return [
        signed(x * y),
        x * y >> 64,
        signed(quotient),
        signed(ux % uy) if uy else -1,
        signed(ux << (y & 63)) ^ (x >> (y & 31)),
        bin(ux).count("1") * 10000 + (64 - ux.bit_length()) * 100 + first,
        signed(int(f"{ux:064b}"[::-1], 2) + min(x, y)),
        signed(int(float(x) * 0.5) + int(math.sqrt(abs(float(y))))),
    ]


def test_wide_integers(order):
    edges = [0, 1, -1, 7, -7, 2**31, -(2**31), 2**63 - 1, -(2**62) - 5, 10**18]
    pairs = [(x, y) for x in edges for y in edges if not (abs(x) > 2**62 and y == -1)]
    a, b = (np.array(column, np.int64) for column in zip(*pairs))
    out = np.zeros((len(pairs), 8), np.int64)
    kiln.emulate(ptx("numbers"), entry="wide_integers", grid=4, block=32,
                 arguments=[a, b, out, len(pairs)], **order)  # fmt: skip
    for (x, y), got in zip(pairs, out):
        assert got.tolist() == wide_integers(x, y), (x, y)


def test_elementary_functions(order):
    x = np.concatenate([random(6).standard_normal(90) * 4, [0, 1, -1, 1e5, -3e4, 1e-6]])
    x = x.astype(np.float32)
    out = np.zeros((len(x), 8), np.float32)
    kiln.emulate(ptx("numbers"), entry="functions", grid=3, block=32, arguments=[x, out, len(x)],
                 **order)  # fmt: skip
    w, f = x.astype(np.float64), np.vectorize
    want = [
        np.sin(w), np.exp(-abs(w)), np.log(1 + abs(x).astype(np.float32)), np.tanh(w),
        abs(w) ** 1.7, w / np.float32(3.7), 1 / np.sqrt(1 + w * w) + np.cbrt(w),
        f(math.erf)(w) + np.fmod(w, np.float32(0.7)),
    ]  # fmt: skip
    np.testing.assert_allclose(out, np.stack(want, 1), rtol=3e-6, atol=2e-6)


WEIGHTS = [0.5, -1.0, 2.0, 0.25, -0.125, 3.0, 1.0, -2.0]
PERMUTATION = [3, 1, 4, 15, 9, 2, 6, 5, 0, 8, 7, 10, 14, 11, 13, 12]
CASES = [
    lambda x: 1.0, lambda x: x * 2, lambda x: math.sqrt(abs(x)), lambda x: WEIGHTS[x >> 4 & 7],
    lambda x: bin(x & 0xFFFFFFFF).count("1"), lambda x: math.fmod(x, 7), lambda x: -x,
    lambda x: PERMUTATION[x >> 4 & 15], lambda x: x * 3, lambda x: -1.0 if x < 0 else 1.0,
    lambda x: x ^ 0x55, lambda x: min(x, 100),
]  # fmt: skip


def test_tables_in_constant_and_local_memory(order):
    x = random(7).integers(-5000, 5000, 96).astype(np.int32)
    out, rows = np.zeros(96, np.float32), np.zeros((96, 16), np.int32)
    kiln.emulate(ptx("numbers"), entry="tables", grid=3, block=32, arguments=[x, out, rows],
                 **order)  # fmt: skip
    for i, value in enumerate(x.tolist()):
        base = CASES[value & 15](value) if value & 15 < 12 else 0.5
        assert out[i] == np.float32(base + WEIGHTS[i % 32 & 7]), (i, value)
        local = sorted(value >> (k & 7) ^ k * 37 for k in range(16))
        assert rows[i].tolist() == local


def interpret(program, i):
    """The machine of numbers.cu in Python."""
    low = (1 << 32) - 1
    a, b, first, at = i, 1, 0, 0
    while at < len(program):
        op = int(program[at])
        both = a | b << 32
        if op == 0:
            a = a + b & low
        elif op == 1:
            a = a - 3 * b & low
        elif op == 2:
            b = a * a + 1 & low
        elif op == 3:
            a ^= b << 3 & low
        elif op == 4:
            b = int(f"{b:032b}"[::-1], 2)
        elif op == 5:
            a = (a * 0x9E3779B9 >> 32) + b & low
        elif op == 6:
            at += a & 1
        elif op == 7:
            a, b = b, a
        elif op == 8:
            a = sum((both >> 8 * int(digit) & 255) << 8 * k for k, digit in enumerate("0415"))
        elif op == 9:
            b = (both << 7) >> 32 & low
        elif op == 10:
            a //= b | 1
        elif op == 11:
            b %= a | 3
        elif op == 12:
            first = a
        elif op == 13:
            a = bin(a).count("1") + 32 - b.bit_length()
        elif op == 14:
            b ^= low
        else:
            break
        at += 1
    return [first, a ^ b]


def test_lanes_that_run_different_programs(order):
    programs = random(10).integers(0, 15, (64, 40)).astype(np.uint8)
    programs[::7, 20] = 15
    out = np.zeros((64, 2), np.uint32)
    kiln.emulate(ptx("numbers"), entry="interpret", grid=2, block=32,
                 arguments=[programs, 40, out], **order)  # fmt: skip
    assert out.tolist() == [interpret(program, i) for i, program in enumerate(programs)]


# ------------------------------------------------------------------ calls.cu: plain, and with -G


@pytest.mark.parametrize("module", ["calls", "calls_debug"])
def test_functions_that_stay_functions(module, order):
    width, threads = 9, 64
    values = random(8).standard_normal((threads, width)).astype(np.float32)
    ranges = np.zeros((threads, 2), np.float32)
    counts = np.zeros((threads, 2), np.int32)
    kiln.emulate(ptx(module), entry="calls", grid=2, block=32,
                 arguments=[values, ranges, counts, width], **order)  # fmt: skip
    assert np.array_equal(ranges, np.stack([values.min(1), values.max(1)], 1))
    positive = ((values > 0) * np.arange(width)).sum(1)
    assert np.array_equal(counts[:, 0], positive * 100 + width)
    assert np.array_equal(counts[:, 1], [i % 5 * 3 if i % 2 else -1 for i in range(threads)])


@pytest.mark.parametrize("module", ["calls", "calls_debug"])
def test_recursion_is_refused(module, order):
    with pytest.raises(kiln.EmulatorError, match=r"does not model recursion: .*ackermann") as error:
        kiln.emulate(ptx(module), entry="recursive", arguments=[np.zeros(32, np.int32)], **order)
    assert error.value.fault == "unknown instruction"
    assert ptx(module).splitlines()[error.value.ptx_line - 1].strip().startswith("call")


def test_a_failed_assertion_is_a_trap(order):
    values = np.array([1, 2, -3], np.int32)
    with pytest.raises(kiln.EmulatorError, match="assertion") as error:
        kiln.emulate(ptx("calls"), entry="asserts", block=3, arguments=[values], **order)
    assert (error.value.fault, error.value.lane) == ("trap", 2)
    kiln.emulate(ptx("calls"), entry="asserts", block=2, arguments=[values], **order)


# --------------------------------------------------------------------------------- pipeline.cu


def test_a_library_barrier_that_the_copies_may_not_see_yet(order):
    """What the CUDA Programming Guide's fence behind init() is for; hardware mostly forgives it."""
    arrays = [np.zeros((2, 64, 4), np.int32) for _ in range(2)]
    with pytest.raises(kiln.EmulatorError, match="mbarrier") as error:
        kiln.emulate(ptx("pipeline"), entry="pipeline_unfenced", block=64, arguments=[*arrays, 2],
                     **order)  # fmt: skip
    assert error.value.fault == "missing proxy fence"


def test_copies_that_run_ahead(order):
    tiles = 5
    values = random(9).integers(-(2**31), 2**31, (tiles, 64, 4)).astype(np.int32)
    out = np.zeros_like(values)
    kiln.emulate(ptx("pipeline"), entry="pipeline", block=64, arguments=[values, out, tiles],
                 **order)  # fmt: skip
    other = values[:, ::-1]
    want = np.stack(
        [
            values[..., 0] + other[..., 3],
            values[..., 1] - other[..., 2],
            values[..., 2] ^ other[..., 1],
            values[..., 3] | other[..., 0],
        ],
        -1,
    )
    assert np.array_equal(out, want)


# -------------------------------------------------------------------------------------- faults


def sums(text=None, **changes):
    values, out = np.ones(96, np.float32), np.zeros(1, np.float32)
    options = dict(entry="block_sums", block=96, shared_bytes=12, arguments=[values, out, 96])
    kiln.emulate(text or ptx("reduce_lines"), **{**options, **changes})
    return out[0]


def test_a_truncated_module(order):
    text = ptx("reduce_lines")
    for part in (0.3, 0.5, 0.7):
        with pytest.raises(kiln.EmulatorError) as error:
            sums(text[: int(len(text) * part)], **order)
        assert error.value.fault == "bad PTX" and error.value.ptx_line


def test_a_wrong_number_of_parameters(order):
    with pytest.raises(ValueError, match="block_sums takes 3 arguments"):
        sums(arguments=[np.ones(96, np.float32)], **order)


def test_too_much_shared_memory(order):
    with pytest.raises(kiln.EmulatorError, match="bytes of shared memory a block") as error:
        sums(shared_bytes=228 * 1024, **order)
    assert error.value.fault == "bad launch"


def test_too_little_shared_memory_names_the_line_of_the_source(order):
    with pytest.raises(kiln.EmulatorError) as error:
        sums(shared_bytes=8, **order)
    fault = error.value
    assert (fault.fault, fault.kernel) == ("out-of-bounds access", "block_sums")
    source = (FOLDER / "reduce.cu").read_text().splitlines()
    assert fault.source.startswith("reduce.cu:")
    assert "scratch[warp] = sum" in source[int(fault.source.split(":")[1].split()[0]) - 1]


def test_a_missing_barrier_is_a_race(order):
    assert sums(**order) == 96
    without = re.sub(r"\n\s*bar(rier)?\.sync[^\n]*", "", ptx("reduce_lines"), count=1)
    with pytest.raises(kiln.EmulatorError) as error:
        sums(without, **order)
    assert error.value.fault in ("race on shared memory", "read of uninitialised shared memory")


def test_an_unknown_instruction_names_itself(order):
    text = ptx("reduce_lines").replace("shfl.sync.bfly.b32", "shfl.sync.twist.b32", 1)
    with pytest.raises(kiln.EmulatorError, match=r"shfl\.sync\.twist\.b32") as error:
        sums(text, **order)
    fault = error.value
    assert (fault.fault, fault.kernel) == ("unknown instruction", "block_sums")
    assert "shfl.sync.twist" in text.splitlines()[fault.ptx_line - 1]
