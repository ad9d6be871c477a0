"""wgmma on operands as wgmma.cuh describes them: K major and MN major, of every type, brought by
the copy engine or written through SwizzledRows<8>::offset()."""

import dataclasses
import zlib

import numpy as np
from matrix_formats import BITS, FP8, decode, encode
from sm90_case import UNORDERED, WRONG_RESULTS, Boxes, Case, broken, render

NANS = {"f16": 0x7E00, "bf16": 0x7FC0, "tf32": 0x7FC00000, "e4m3": 0x7F, "e5m2": 0x7F}
STORED = {8: np.uint8, 16: np.uint16, 32: np.uint32}
# Whole numbers whose sums are exact in any order; e5m2 has three bits for them.
LARGEST = {"f16": 100, "bf16": 100, "tf32": 200, "e4m3": 8, "e5m2": 8}


def descriptor_step(k_major):
    """32 bytes further along the row, or 16 rows of 128 bytes down; in units of 16 bytes."""
    return 2 if k_major else 128


def products_text(kinds, n, rows_k, columns_k, steps):
    """struct Products as jit/op/wgmma_source.cpp prints it, of any types and number of steps."""
    count = n // 2
    registers = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    lines = ["{.reg .pred more, always; .reg .b64 a, b;", f"setp.ne.b32 more, %{count + 2}, 0;"]
    lines.append(f"setp.eq.b32 always, %{count + 2}, %{count + 2};")
    majors = f", {int(not rows_k)}, {int(not columns_k)}" if BITS[kinds[0]] == 16 else ""
    shape = f"m64n{n}k{256 // BITS[kinds[0]]}"
    for step in range(steps):
        lines.append(f"add.u64 a, %{count}, {step * descriptor_step(rows_k)};")
        lines.append(f"add.u64 b, %{count + 1}, {step * descriptor_step(columns_k)};")
        lines.append(
            f"wgmma.mma_async.sync.aligned.{shape}.f32.{kinds[0]}.{kinds[1]} {registers}, a, b, "
            f"{'always' if step else 'more'}, 1, 1{majors};"
        )
    body = "\n".join(f'        "{line}\\n"' for line in [*lines, "}"])
    return f"""struct Products {{
  static constexpr int kRegisters = {count};
  __device__ __forceinline__ static void multiply(float (&d)[kRegisters], unsigned long long a,
                                                  unsigned long long b, int accumulate) {{
    asm volatile(
{body}
        : {outputs}
        : "l"(a), "l"(b), "r"(accumulate));
  }}
  __device__ __forceinline__ static void finish(float (&d)[kRegisters]) {{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : {outputs} :: "memory");
  }}
}};"""


def window(matrix, row, rows, column, columns):
    """A part of a matrix that may lie beyond its edges, where zeros are."""
    out = np.zeros((rows, columns))
    inside = [
        slice(max(first, 0), max(min(first + count, size), 0))
        for first, count, size in zip((row, column), (rows, columns), matrix.shape)
    ]
    part = matrix[inside[0], inside[1]]
    top, left = inside[0].start - row, inside[1].start - column
    out[top : top + part.shape[0], left : left + part.shape[1]] = part
    return out


@dataclasses.dataclass(frozen=True)
class Product:
    kinds: tuple
    n: int
    rows_k: bool = True  # K major?
    columns_k: bool = True
    row_tiles: int = 1
    blocks: int = 2  # of K
    steps: int = 4
    loaded_n: int = 0  # 0 = n
    first_n: int = 0
    buffers: int = 0  # for blocks of K; 0 = one for each
    at: int = 0  # in shared memory
    by_threads: bool = False
    # Where the tile begins, and the operands' sizes: M, N and K, of which the tile sees an end.
    row: int = -5
    column: int = -3
    k: int = 16

    @property
    def name(self):
        majors = "".join("k" if major else "mn" for major in (self.rows_k, self.columns_k))
        parts = ["product", *self.kinds, majors, f"n{self.n}", f"m{self.row_tiles * 64}"]
        parts += [f"k{self.depth}"] * (self.steps != 4) + ["by_threads"] * self.by_threads
        parts += [f"from{self.first_n}"] * (self.first_n > 0) + [f"at{self.at}"] * (self.at > 0)
        return ".".join(parts + [f"blocks{self.blocks}in{self.buffers}"] * (self.buffers > 0))

    @property
    def block_k(self):
        return self.steps * 256 // BITS[self.kinds[0]]

    @property
    def depth(self):
        return self.blocks * self.block_k

    def operand(self, rng, kind, k_major, extent, first):
        """(array with room behind each row, its view, the numbers as [batch, M or N, K])."""
        if self.by_threads:
            sizes = [1, extent, self.depth]
        else:
            beyond = 6 if extent > 8 else 1
            sizes = [2, first + extent - beyond, self.k + self.depth - 3]
        codes = encode(kind, rng.integers(-LARGEST[kind], LARGEST[kind] + 1, sizes))
        stored = codes if k_major else codes.transpose(0, 2, 1)
        per_unit = 128 // BITS[kind]  # 16 bytes
        pitch = -(-stored.shape[2] // per_unit) * per_unit + (0 if self.by_threads else per_unit)
        array = np.full((*stored.shape[:2], pitch), NANS[kind], STORED[BITS[kind]])
        array[..., : stored.shape[2]] = stored
        width = stored.shape[2]
        if kind == "tf32":
            array = array.view(np.float32)
        return array, (lambda whole: whole[..., :width]), decode(kind, codes)

    def box(self, k_major, extent):
        elements = 1024 // BITS[self.kinds[0]]
        return (1, extent, elements) if k_major else (1, self.block_k, elements)

    def bytes_of(self, k_major, extent):
        return extent * 128 if k_major else -(-extent // 64) * self.block_k * 128

    def case(self):
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        m, loaded_n = self.row_tiles * 64, self.loaded_n or self.n
        # Along rows of memory a box begins at a multiple of 16 bytes.
        row = self.row if self.rows_k else self.row - 3
        column = self.column if self.columns_k else self.column - 5
        place = np.array([row, column, self.k, 1], np.int32)
        if self.by_threads:
            place = np.zeros(4, np.int32)
        rows = self.operand(rng, self.kinds[0], self.rows_k, m, place[0])
        columns = self.operand(rng, self.kinds[1], self.columns_k, loaded_n, place[1])
        a = window(rows[2][place[3]], place[0], m, place[2], self.depth)
        b = window(columns[2][place[3]], place[1], loaded_n, place[2], self.depth)
        b = b[self.first_n : self.first_n + self.n]
        constants = {
            "kRowsK": self.rows_k, "kColumnsK": self.columns_k, "kRowTiles": self.row_tiles,
            "kElementBytes": BITS[self.kinds[0]] // 8, "kN": self.n, "kLoadedN": loaded_n,
            "kFirstN": self.first_n, "kSteps": self.steps, "kBlocksK": self.blocks,
            "kBuffers": self.buffers or self.blocks, "kAt": self.at, "kByThreads": self.by_threads,
            "text": products_text(self.kinds, self.n, self.rows_k, self.columns_k, self.steps),
        }  # fmt: skip
        maps = [
            Boxes(array, self.box(k_major, extent), view=view)
            for (array, view, _), k_major, extent in (
                (rows, self.rows_k, m),
                (columns, self.columns_k, loaded_n),
            )
        ]
        own = []
        for array, _, _ in (rows, columns):
            own += [array.copy(), np.int32(array.shape[2] * array.itemsize // 16)]
        stage = self.bytes_of(self.rows_k, m) + self.bytes_of(self.columns_k, loaded_n)
        return Case(
            self.name,
            render("product", constants),
            [*maps, np.full((m, self.n), np.nan, np.float32), np.void(place.tobytes()), *own],
            {2: (a @ b.T).astype(np.float32)},
            shared=self.at + (self.buffers or self.blocks) * (stage + 8),
        )


def products():
    for kind in ("bf16", "f16"):
        for n in (8, 64, 128, 256):
            yield Product((kind, kind), n, row_tiles=1 if n == 256 else 2)
        for rows_k, columns_k in ((True, False), (False, True), (False, False)):
            for n in (64, 128, 256) if kind == "bf16" else (128,):
                yield Product((kind, kind), n, rows_k, columns_k, row_tiles=1 if n == 256 else 2)
    bf16 = ("bf16", "bf16")
    # Columns from the middle of what was loaded: 8 rows are 1024 bytes.
    yield Product(bf16, 24, loaded_n=64, first_n=16)
    # An address takes 18 bits.
    yield Product(bf16, 64, at=192 * 1024)
    # Buffers that are filled again while the next block's products are under way.
    yield Product(bf16, 64, row_tiles=2, blocks=6, buffers=2)
    yield Product(bf16, 64, False, False, blocks=5, buffers=3)
    # Blocks of 80 rows of K: the next 64 columns are 10240 bytes on, as a value tile's are.
    yield Product(bf16, 128, False, False, steps=5, row_tiles=2, blocks=1)
    for n in (8, 64, 256):
        yield Product(("tf32", "tf32"), n, row_tiles=1 if n == 256 else 2)
    for kinds in [(a, b) for a in FP8 for b in FP8]:
        yield Product(kinds, 64, row_tiles=2)
    yield Product(("e4m3", "e4m3"), 256)
    for rows_k, columns_k in ((True, True), (True, False), (False, True)):
        yield Product(bf16, 128, rows_k, columns_k, row_tiles=2, by_threads=True)
    yield Product(("tf32", "tf32"), 40, by_threads=True)
    yield Product(("e5m2", "e4m3"), 40, by_threads=True)


CASES = [product.case() for product in products()]
BY_NAME = {case.name: case for case in CASES}
WRITTEN = BY_NAME["product.bf16.bf16.kk.n128.m128.by_threads"]
WIDE = BY_NAME["product.bf16.bf16.kmn.n128.m128"]
REFILLED = BY_NAME["product.bf16.bf16.kk.n64.m128.blocks6in2"]
BROUGHT = BY_NAME["product.bf16.bf16.kk.n64.m128"]

SWIZZLED, STRAIGHT = "SwizzledRows<8>::offset(row, chunk % 8)", "row * 128 + chunk % 8 * 16"
LEADING, BYTES = "Columns::kBlockBytes);", "(barrier, kBlockBytes"
WAIT = "    if constexpr (!kByThreads) wait(barriers + i % kBuffers * 8, i / kBuffers & 1);\n"

CASES += [
    broken(WRITTEN, "no_proxy_fence", "fence.proxy.async", ("  fence_async_proxy();\n", "")),
    broken(WRITTEN, "no_swizzle", WRONG_RESULTS, (SWIZZLED, STRAIGHT)),
    broken(WIDE, "leading_offset", WRONG_RESULTS, (LEADING, "Columns::kBlockBytes / 2);")),
    broken(BROUGHT, "no_begin", "wgmma.fence", ("    begin_products();\n", "")),
    broken(BROUGHT, "no_wait", UNORDERED, (WAIT, "")),
    broken(BROUGHT, "wrong_parity", UNORDERED, ("i / kBuffers & 1", "1 - (i / kBuffers & 1)")),
    broken(REFILLED, "too_early", UNORDERED, ("wait_products<1>", "wait_products<2>")),
    broken(BROUGHT, "too_few_bytes", UNORDERED, (BYTES, "(barrier, kBlockBytes - 16")),
    broken(BROUGHT, "too_many_bytes", "deadlock", (BYTES, BYTES + " + 16")),
]
