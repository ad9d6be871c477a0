"""Tests of single instructions as data: a Case is a piece of PTX with its inputs and what must
come out. The same case runs on the emulated device and on a GPU.

A case's body sees, each thread of its own:
- %i0, %i1, ...: one element of each input; of an input of shape [threads, n], %i0_0 ... %i0_{n-1}
- %o0, %o1, ...: the outputs to assign, for "u32[4]" %o0_0 ... %o0_3
- %b0, %b1, ...: the addresses of the extra buffers, 64-bit, global
- memory: a .shared array of `shared` bytes; dynamic: one of `dynamic` bytes given at launch
- thread: %thread, the linear index of the thread in the grid, 32-bit
Registers are bit-typed (.b16 for 8-bit elements too), so that any instruction of that size takes
them; inputs of dtype bool and outputs "pred" are predicates. The body stands in a scope of its
own: its registers and labels are its own. A body never returns.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pathlib
import re

import numpy as np

HERE = pathlib.Path(__file__).parent
SCHEDULES = ("eager", "late")

# Storage of what an output is called. bf16 and fp8 are kept as bits.
DTYPES = {
    "pred": np.bool_,
    **dict.fromkeys(("b8", "u8", "e4m3", "e5m2"), np.uint8),
    "s8": np.int8,
    **dict.fromkeys(("b16", "u16", "bf16"), np.uint16),
    "s16": np.int16,
    **dict.fromkeys(("b32", "u32", "f16x2", "bf16x2"), np.uint32),
    "s32": np.int32,
    **dict.fromkeys(("b64", "u64"), np.uint64),
    "s64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """An element is right when any one of the bounds holds."""

    ulp: int = 0  # units in the last place of the output's own type
    abs: float = 0.0
    rel: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    name: str
    body: str
    inputs: list = dataclasses.field(default_factory=list)
    outputs: list = dataclasses.field(default_factory=list)
    # One array an output, [threads] or [threads, n]. None for an output (or for all): whatever
    # the hardware gives is right; on a GPU the emulator is compared with it. With floating-point
    # outputs any two NaNs agree; call the output "b32" to compare their bits.
    expected: list | None = None
    tolerance: Tolerance = Tolerance()
    threads: int | tuple = 32  # of a block: x, or (x, y, z)
    grid: tuple = (1, 1, 1)
    cluster: tuple = (1, 1, 1)
    shared: int = 0
    dynamic: int = 0
    buffers: list = dataclasses.field(default_factory=list)
    expected_buffers: list | None = None  # None for one that isn't compared
    module: str = ""  # what stands before the kernel: .global and .const variables, functions
    directives: str = ""  # behind the parameter list: .maxnreg ...
    target: str = "sm_80"
    version: str = "8.0"
    fault: str | None = None  # part of the message that the emulator must fail with
    emulator_only: bool = False  # undefined, or of no fixed value, on hardware

    @property
    def block(self):
        return (self.threads, 1, 1) if isinstance(self.threads, int) else tuple(self.threads)

    @property
    def thread_count(self):
        return math.prod(self.block) * math.prod(self.grid)

    def __repr__(self):
        return self.name


def split_output(output):
    """ "u32[4]" -> ("u32", 4)."""
    match = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", output)
    if match is None or match[1] not in DTYPES:
        raise ValueError(f"no such output type: {output}")
    return match[1], int(match[2] or 1)


def registers(kind, index, count):
    if count == 1:
        return [f"%{kind}{index}"]
    return [f"%{kind}{index}_{element}" for element in range(count)]


def elements(array):
    return math.prod(np.shape(array)[1:])


class Composer:
    """Collects the text of one kernel: parameters, loads in front of the body, stores behind it."""

    def __init__(self, case):
        self.case = case
        self.parameters, self.declarations, self.before, self.after = [], [], [], []

    def pointer(self, name, element_bytes):
        """Declares a parameter; returns the address of the thread's own part of it."""
        index = len(self.parameters)
        self.parameters.append(f"  .param .u64 {name}")
        register = f"%kiln_{name}"
        self.declarations.append(f".reg .b64 {register};")
        self.before.append(f"ld.param.u64 {register}, [{name}];")
        if element_bytes:
            self.before.append(f"mad.wide.u32 {register}, %thread, {element_bytes}, {register};")
        assert index < 64
        return register

    def load(self, index, array):
        count, size = elements(array), array.dtype.itemsize
        base = self.pointer(f"input{index}", count * size)
        for element, register in enumerate(registers("i", index, count)):
            where = f"[{base}+{element * size}]"
            if array.dtype == np.bool_:
                self.declarations.append(f".reg .pred {register};")
                self.before.append(f"ld.global.u8 %kiln_byte, {where};")
                self.before.append(f"setp.ne.u16 {register}, %kiln_byte, 0;")
            else:
                self.declarations.append(f".reg .b{max(16, size * 8)} {register};")
                self.before.append(f"ld.global.b{size * 8} {register}, {where};")

    def store(self, index, output):
        kind, count = split_output(output)
        size = np.dtype(DTYPES[kind]).itemsize
        base = self.pointer(f"output{index}", count * size)
        for element, register in enumerate(registers("o", index, count)):
            where = f"[{base}+{element * size}]"
            if kind == "pred":
                self.declarations.append(f".reg .pred {register};")
                self.after.append(f"selp.u16 %kiln_byte, 1, 0, {register};")
                self.after.append(f"st.global.u8 {where}, %kiln_byte;")
            else:
                self.declarations.append(f".reg .b{max(16, size * 8)} {register};")
                self.after.append(f"st.global.b{size * 8} {where}, {register};")

    def thread_index(self):
        """The linear index of the thread, x fastest; blocks likewise."""
        registers_ = ", ".join(f"%kiln_t{i}" for i in range(3))
        lines = [f".reg .b32 %thread, {registers_};", ".reg .b16 %kiln_byte;"]
        self.declarations += lines
        step = [("%ctaid.z", "%nctaid.y", "%ctaid.y"), (None, "%nctaid.x", "%ctaid.x")]
        step += [(None, "%ntid.z", "%tid.z"), (None, "%ntid.y", "%tid.y")]
        step += [(None, "%ntid.x", "%tid.x")]
        for first, factor, summand in step:
            if first:
                self.before.append(f"mov.u32 %thread, {first};")
            self.before.append(f"mov.u32 %kiln_t0, {factor};")
            self.before.append(f"mov.u32 %kiln_t1, {summand};")
            self.before.append("mad.lo.u32 %thread, %thread, %kiln_t0, %kiln_t1;")

    def text(self):
        case = self.case
        self.thread_index()
        for index, array in enumerate(case.inputs):
            self.load(index, np.asarray(array))
        for index, output in enumerate(case.outputs):
            self.store(index, output)
        for index, _ in enumerate(case.buffers):
            register = self.pointer(f"buffer{index}", 0)
            self.declarations.append(f".reg .b64 %b{index};")
            self.before.append(f"mov.b64 %b{index}, {register};")
        if case.shared:
            self.declarations.append(f".shared .align 1024 .b8 memory[{case.shared}];")
        head = [f".version {case.version}", f".target {case.target}", ".address_size 64"]
        if case.dynamic:
            head.append(".extern .shared .align 1024 .b8 dynamic[];")
        if case.module:
            head.append(case.module)
        signature = ",\n".join(self.parameters)
        body = "\n".join("    " + line.strip() for line in case.body.strip().splitlines())
        lines = [*head, "", ".visible .entry kernel(", signature, ")"]
        if case.directives:
            lines.append(case.directives)
        lines.append("{")
        lines += ["  " + line for line in self.declarations + self.before]
        lines += ["  {", body, "  }"]
        lines += ["  " + line for line in [*self.after, "ret;"]]
        return "\n".join([*lines, "}", ""])


def compose(case):
    """The PTX module of a case."""
    for array in case.inputs:
        if np.shape(array)[0] != case.thread_count:
            raise ValueError(f"{case.name}: an input has {np.shape(array)[0]} rows")
    return Composer(case).text()


@dataclasses.dataclass
class Result:
    outputs: list
    buffers: list


def storage(case):
    """Arrays to run on, in the order of the parameters. Outputs are filled with a pattern, so
    that a missing store shows."""
    inputs = [np.ascontiguousarray(array).copy() for array in case.inputs]
    outputs = []
    for output in case.outputs:
        kind, count = split_output(output)
        shape = (case.thread_count,) if count == 1 else (case.thread_count, count)
        size = np.dtype(DTYPES[kind]).itemsize
        raw = np.full(math.prod(shape) * size, 0xA5 if kind != "pred" else 0, dtype=np.uint8)
        outputs.append(raw.view(DTYPES[kind]).reshape(shape))
    return inputs, outputs, [np.ascontiguousarray(array).copy() for array in case.buffers]


def run_emulated(case, schedule="late", seed=0):
    import kiln

    inputs, outputs, buffers = storage(case)
    kiln.emulate(
        compose(case),
        entry="kernel",
        grid=case.grid,
        block=case.block,
        cluster=case.cluster,
        arguments=[*inputs, *outputs, *buffers],
        shared_bytes=case.dynamic,
        arch=emulated_arch(case),
        schedule=schedule,
        seed=seed,
        checks=True,
    )
    return Result(outputs, buffers)


def emulated_arch(case):
    """The smallest modelled device that runs the target."""
    return case.target


def run_on_gpu(case):
    from cuda_driver import launch

    inputs, outputs, buffers = storage(case)
    launch(
        compose(case),
        "kernel",
        case.grid,
        case.block,
        case.cluster,
        [*inputs, *outputs, *buffers],
        case.dynamic,
    )
    return Result(outputs, buffers)


def as_float(array, kind):
    if kind == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def ordered_bits(array):
    """Bits of floating-point numbers as integers that grow with them."""
    size = array.dtype.itemsize
    bits = array.view(f"i{size}").astype(object)
    low = -(1 << (size * 8 - 1))
    return np.where(bits < 0, low - bits, bits)


class Differences:
    """How two arrays of one output differ."""

    def __init__(self, kind, got, want, tolerance):
        want = np.asarray(want)
        if want.dtype.itemsize != got.dtype.itemsize or want.dtype.kind != got.dtype.kind:
            raise ValueError(f"expected values of dtype {want.dtype} for an output {got.dtype}")
        want = np.broadcast_to(want, got.shape)
        self.worst_ulp, self.worst_abs = 0, 0.0
        raw = f"u{got.dtype.itemsize}"
        same = got.view(raw) == np.ascontiguousarray(want).view(raw)
        if kind in ("f16", "bf16", "f32", "f64"):
            same = self.compare_reals(kind, got, np.ascontiguousarray(want), tolerance, same)
        self.bad = np.argwhere(~same)

    def compare_reals(self, kind, got, want, tolerance, same):
        a, b = as_float(got, kind), as_float(want, kind)
        same = same | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        with np.errstate(all="ignore"):
            distance = np.where(finite, np.abs(a - b), np.inf)
            close = (distance <= tolerance.abs) | (distance <= tolerance.rel * np.abs(b))
        ulp = np.abs(ordered_bits(got) - ordered_bits(want))
        close |= (ulp <= tolerance.ulp).astype(bool) & ~np.isnan(a) & ~np.isnan(b)
        differing = finite & ~same
        if differing.any():
            self.worst_ulp = int(ulp[differing].max())
            self.worst_abs = float(distance[differing].max())
        if tolerance == Tolerance():
            return same
        return same | (close & (finite | (ulp <= tolerance.ulp).astype(bool)))


def shown(array, index):
    value = array[tuple(index)]
    if value.dtype.kind == "b":
        return str(bool(value))
    bits = value.view(f"u{value.dtype.itemsize}")
    return f"{value} ({int(bits):#0{2 + 2 * value.dtype.itemsize}x})"


def mismatches(case, result, outputs, buffers, what):
    """Lines that tell how a result differs from the given outputs and buffers; None in them is
    not compared. Second: the largest tolerated error in units in the last place."""
    lines, worst = [], 0
    pairs = []
    for index, want in enumerate(outputs or []):
        pairs.append(
            (f"%o{index}", split_output(case.outputs[index])[0], result.outputs[index], want)
        )
    for index, want in enumerate(buffers or []):
        got = result.buffers[index]
        kind = {"f": f"f{got.dtype.itemsize * 8}"}.get(got.dtype.kind, "b32")
        pairs.append((f"buffer {index}", kind, got, want))
    for name, kind, got, want in pairs:
        if want is None:
            continue
        difference = Differences(kind, got, want, case.tolerance)
        worst = max(worst, difference.worst_ulp)
        want = np.broadcast_to(want, got.shape)
        for index in difference.bad[:4]:
            place = ", ".join(str(i) for i in index)
            lines.append(
                f"{name}[{place}] is {shown(got, index)}, {what} {shown(want, index)};"
                f" inputs {inputs_of(case, int(index[0]))}"
            )
        if len(difference.bad) > 4:
            lines.append(f"{name}: {len(difference.bad)} elements differ in all")
    return lines, worst


def inputs_of(case, thread):
    if not case.inputs or thread >= case.thread_count:
        return "none"
    return ", ".join(str(np.asarray(array)[thread]) for array in case.inputs)


def check(case, result):
    """Asserts that a result is what the case expects. Returns the largest tolerated error."""
    lines, worst = mismatches(case, result, case.expected, case.expected_buffers, "expected")
    assert not lines, "\n".join([case.name, *lines])
    return worst


def all_cases():
    """The cases of every cases_*.py beside this file."""
    cases, names = [], set()
    for path in sorted(HERE.glob("cases_*.py")):
        for case in importlib.import_module(path.stem).CASES:
            if case.name in names:
                raise ValueError(f"two cases are called {case.name}")
            names.add(case.name)
            cases.append(case)
    return cases
