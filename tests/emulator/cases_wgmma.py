"""wgmma: every type, swizzle and major direction, A in shared memory and in registers; what waits
and fences are for."""

import dataclasses
import zlib

import numpy as np
from instruction import Case
from matrix_formats import (
    BITS,
    FP8,
    INTEGERS,
    SPREADS,
    decode,
    descriptor,
    encode,
    fragment_a,
    fragment_c,
    numbers,
    shared_k_major,
    shared_mn_major,
    summands,
)
from matrix_sums import tensor_core_sum

PAGE = 1024  # operands begin where a swizzle's pattern does

# Copies `bytes` of the buffer to shared memory; the asynchronous units may then read it.
COPY = """
.reg .b32 %base, %at, %offset, %w0, %w1, %w2, %w3;
.reg .b64 %source, %a, %b;
.reg .pred %done, %scale;
mov.u32 %base, memory;
mul.lo.u32 %offset, %thread, 16;
COPY:
setp.ge.u32 %done, %offset, BYTES;
@%done bra COPIED;
cvt.u64.u32 %source, %offset;
add.u64 %source, %b0, %source;
ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [%source];
add.u32 %at, %base, %offset;
st.shared.v4.b32 [%at], {%w0, %w1, %w2, %w3};
add.u32 %offset, %offset, 2048;
bra COPY;
COPIED:
fence.proxy.async.shared::cta;
bar.sync 0;
"""


def make_descriptor(register, offset, bits):
    return f"""
add.u32 %at, %base, {offset};
shr.u32 %at, %at, 4;
and.b32 %at, %at, 0x3fff;
cvt.u64.u32 {register}, %at;
or.b64 {register}, {register}, {bits:#x};
"""


@dataclasses.dataclass
class Product:
    kinds: tuple
    n: int
    accumulator: str = "f32"
    swizzle: int = 128
    a_major: str = "k"  # k, mn, or r: in registers
    b_major: str = "k"
    scale_d: int = 1
    scales: tuple = (1, 1)
    steps: int = 1  # of k, side by side in one swizzled row
    spread: str = "exact"
    saturate: bool = False

    @property
    def k(self):
        return 256 // BITS[self.kinds[0]]

    @property
    def name(self):
        parts = [f"wgmma.n{self.n}", self.accumulator, *self.kinds, f"sw{self.swizzle}"]
        parts += [f"a_{self.a_major}", f"b_{self.b_major}", f"d{self.scale_d}"]
        parts += [self.spread] * (self.spread != "exact") + ["satfinite"] * self.saturate
        parts += [f"scale{self.scales[0]}{self.scales[1]}"] * (self.scales != (1, 1))
        return ".".join(parts + [f"x{self.steps}"] * (self.steps > 1))

    def draw(self):
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        width = self.k * self.steps
        a = numbers(rng, self.kinds[0], (64, width), self.spread)
        b = numbers(rng, self.kinds[1], (self.n, width), self.spread)
        if self.accumulator == "s32":
            edge = 2**31 - 20000
            return a, b, rng.choice([-edge, edge, 0, 999], (64, self.n))
        return a, b, summands(rng, self.kinds, self.accumulator, (64, self.n), self.spread)

    def want(self, a, b, c):
        if self.accumulator != "s32":
            signed = decode(self.kinds[0], a) * (self.scales[0] * self.scales[1])
            a, c = encode(self.kinds[0], signed), c * self.scale_d
            for step in range(self.steps):
                k = slice(step * self.k, (step + 1) * self.k)
                c = tensor_core_sum(a[:, k], b.T[k], c, self.kinds, self.accumulator, wgmma=True)
                c = c.astype(np.float64)
            return c.astype(np.float32)
        product = decode(self.kinds[0], a) @ decode(self.kinds[1], b).T + c * self.scale_d
        if self.saturate:
            product = np.clip(product, -(2**31), 2**31 - 1)
        return (product.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)

    def operand(self, codes, kind, major):
        if major == "k":
            return shared_k_major(codes, kind, self.swizzle)
        return shared_mn_major(codes, self.swizzle)

    def instruction(self, registers, a):
        shape = f"m64n{self.n}k{self.k}" + (".satfinite" if self.saturate else "")
        text = f"wgmma.mma_async.sync.aligned.{shape}.{self.accumulator}"
        operands = [registers, a, "%b", "%scale"]
        if self.kinds[0] not in INTEGERS:
            operands += [str(scale) for scale in self.scales]
        if BITS[self.kinds[0]] == 16:
            majors = [self.b_major] if self.a_major == "r" else [self.a_major, self.b_major]
            operands += ["1" if major == "mn" else "0" for major in majors]
        return f"{text}.{self.kinds[0]}.{self.kinds[1]} {', '.join(operands)};\n"

    def operands(self, a, b):
        """The image of shared memory and the text that makes the descriptors."""
        image_b, strides_b = self.operand(b, self.kinds[1], self.b_major)
        if self.a_major == "r":
            image, at, text = b"", 0, ""
        else:
            image_a, strides_a = self.operand(a, self.kinds[0], self.a_major)
            at = -(-image_a.size // PAGE) * PAGE
            image = image_a.tobytes().ljust(at, b"\0")
            text = make_descriptor("%a", 0, descriptor(self.swizzle, strides_a))
        text += make_descriptor("%b", at, descriptor(self.swizzle, strides_b))
        return np.frombuffer(image + image_b.tobytes(), np.uint8), text

    def by_warp(self, rows, fragment, *arguments):
        return np.concatenate([fragment(rows[w : w + 16], *arguments) for w in range(0, 64, 16)])

    def case(self, **changes):
        a, b, c = self.draw()
        half = self.accumulator == "f16"
        stored = c.astype(np.int64).astype(np.uint32) if self.accumulator == "s32" else c
        if not half and self.accumulator != "s32":
            stored = c.astype(np.float32)
        inputs = [self.by_warp(stored, fragment_c, half)]
        image, text = self.operands(a, b)
        count = inputs[0].shape[1]
        if self.a_major == "r":
            inputs.append(self.by_warp(a, fragment_a, self.kinds[0]))
        body = COPY.replace("BYTES", str(image.size)) + text
        body += "".join(f"mov.b32 %o0_{i}, %i0_{i};\n" for i in range(count))
        body += f"mov.u32 %at, {self.scale_d};\nsetp.ne.u32 %scale, %at, 0;\n"
        body += "wgmma.fence.sync.aligned;\n"
        registers = "{" + ", ".join(f"%o0_{i}" for i in range(count)) + "}"
        a_operand = "{%i1_0, %i1_1, %i1_2, %i1_3}" if self.a_major == "r" else "%a"
        for step in range(self.steps):
            if step:  # 32 bytes on
                body += "add.s64 %a, %a, 2;\nadd.s64 %b, %b, 2;\n"
            body += self.instruction(registers, a_operand)
        body += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
        real = self.kinds[0] not in INTEGERS
        kind = {"f16": "f16x2", "f32": "f32", "s32": "u32"}[self.accumulator]
        return dataclasses.replace(
            Case(
                self.name,
                body,
                inputs,
                [f"{kind}[{count}]"],
                [self.by_warp(self.want(a, b, c), fragment_c, half)],
                threads=128,
                shared=image.size,
                buffers=[image],
                target="sm_90a",
                version="8.0" if real or self.kinds[0] == self.kinds[1] else "8.4",
            ),
            **changes,
        )


def products():
    reals = [("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32")]
    reals += [(a, b) for a in FP8 for b in FP8]
    for kinds in reals:
        for n in (8, 64, 120, 256):
            yield Product(kinds, n, scale_d=n // 8 % 2)
        yield Product(kinds, 24, spread="any")
        yield Product(kinds, 24, spread="far")
        yield Product(kinds, 64, a_major="r")
        for swizzle in (0, 32, 64):
            yield Product(kinds, 40, swizzle=swizzle)
        yield Product(kinds, 16, scales=(-1, 1))
    for kinds in [(a, b) for a in ("s8", "u8") for b in ("s8", "u8")]:
        for n in (8, 24, 64, 112, 256):
            yield Product(kinds, n, "s32", scale_d=n // 16 % 2)
        yield Product(kinds, 32, "s32", a_major="r", saturate=True)
    for swizzle in (0, 32, 64):
        yield Product(("s8", "u8"), 48, "s32", swizzle=swizzle, saturate=True)
    for kinds in reals[:2]:
        for swizzle in (0, 32, 64, 128):
            for a_major, b_major in (("mn", "mn"), ("k", "mn"), ("mn", "k"), ("r", "mn")):
                for n in (8, 120):
                    yield Product(kinds, n, swizzle=swizzle, a_major=a_major, b_major=b_major)
        yield Product(kinds, 256, a_major="mn", b_major="mn", scale_d=0)
    for scales in ((1, -1), (-1, -1)):
        yield Product(("bf16", "bf16"), 16, scales=scales)
    for kinds, swizzle, steps in ((reals[1], 128, 4), (reals[0], 64, 2), (reals[3], 128, 3)):
        yield Product(kinds, 64, swizzle=swizzle, steps=steps)
    for kinds in (reals[0], reals[3], reals[6]):
        for spread in SPREADS:
            yield Product(kinds, 64, "f16", spread=spread)
        yield Product(kinds, 8, "f16", a_major="r", scale_d=0)


def short_accumulator():
    """16384 + 1 with 13 fractional bits is 16384: why sums of fp8 must be promoted."""
    product = Product(("e4m3", "e4m3"), 8, a_major="r")
    case = product.case(name="wgmma.fp8.short_accumulator")
    codes = np.zeros((64, 32), np.uint32)
    codes[:, 0] = encode("e4m3", 1.0)
    ones = encode("e4m3", np.ones((8, 32)))
    image, _ = shared_k_major(ones, "e4m3", 128)
    return dataclasses.replace(
        case,
        inputs=[
            np.full((128, 4), 16384, np.float32),
            product.by_warp(codes, fragment_a, "e4m3"),
        ],
        buffers=[image],
        expected=[np.full((128, 4), 16384, np.float32)],
    )


# What goes wrong without a fence or wait, or where registers in flight are touched. On hardware
# such kernels give garbage, or ptxas serialises them.
BASE = Product(("bf16", "bf16"), 8, a_major="r").case()
FENCE, COMMIT, WAIT = (
    "wgmma.fence.sync.aligned;\n",
    "wgmma.commit_group.sync.aligned;\n",
    "wgmma.wait_group.sync.aligned 0;\n",
)
PRODUCT = next(line for line in BASE.body.splitlines() if line.startswith("wgmma.mma_async")) + "\n"


def changed(name, fault, *replacements, **changes):
    body = BASE.body
    for old, new in replacements:
        assert old in body, (name, old)
        body = body.replace(old, new)
    more = {} if fault is None else {"fault": fault, "emulator_only": True, "expected": None}
    return dataclasses.replace(BASE, name=f"wgmma.{name}", body=body, **{**more, **changes})


def moved_accumulators():
    """As compilers leave them: moves of accumulators in flight, which become no instruction."""
    moves = "".join(f"mov.b32 %m{i}, %o0_{i};\n" for i in range(4))
    back = "".join(f"mov.b32 %o0_{i}, %m{i};\n" for i in range(4))
    second = PRODUCT.replace("%o0_", "%m")
    declared = ".reg .b32 %m0, %m1, %m2, %m3;\n"
    first = np.asarray(BASE.expected[0], np.float64)
    want = (2 * first - np.asarray(BASE.inputs[0], np.float64)).astype(np.float32)
    return changed(
        "moved_in_flight",
        None,
        (COMMIT + WAIT, moves + second + COMMIT + back + WAIT),
        (".reg .pred", declared + ".reg .pred"),
        expected=[want],
    )


HAZARDS = [
    moved_accumulators(),
    changed("no_fence", "wgmma.fence", (FENCE, "")),
    changed("no_wait", "in flight", (WAIT, "")),
    changed("no_commit", "in flight", (COMMIT, "")),
    changed("wait_for_others", "in flight", (WAIT, WAIT.replace("0", "1"))),
    changed("never_waited_for", "never waited for", (COMMIT + WAIT, COMMIT + "exit;\n")),
    changed("no_proxy_fence", "proxy", ("fence.proxy.async.shared::cta;\n", "")),
    changed("a_overwritten", "%i1_2 is overwritten", (WAIT, "mov.b32 %i1_2, 0;\n" + WAIT)),
    changed("d_overwritten", "%o0_1 is overwritten", (WAIT, "mov.b32 %o0_1, 0;\n" + WAIT)),
    changed("d_read", "%o0_3 is read", (WAIT, "add.u32 %at, %o0_3, 1;\n" + WAIT)),
    changed(
        "written_after_fence",
        "after the last wgmma.fence",
        (FENCE, FENCE + "add.u32 %i1_0, %i1_0, 1;\n"),
    ),
    changed("operand_overwritten", "race", (COMMIT, "st.shared.b32 [%base], %at;\n" + COMMIT)),
    changed("half_a_warpgroup", "warpgroup", threads=64, inputs=[x[:64] for x in BASE.inputs]),
    changed("wrong_target", "sm_90a", target="sm_90"),
    changed("base_offset", "base offset", (FENCE, "or.b64 %b, %b, 0x2000000000000;\n" + FENCE)),
    changed("out_of_bounds", "out-of-bounds", (FENCE, "or.b64 %b, %b, 0x3fff;\n" + FENCE)),
]

CASES = [product.case() for product in products()] + [short_accumulator(), *HAZARDS]
