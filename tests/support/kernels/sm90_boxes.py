"""Boxes between tensors and shared memory, seen by ordinary loads and stores: what
SwizzledRows<8> says of the copy engine's swizzle, and the way of accumulators to a tensor."""

import zlib

import numpy as np
from matrix_formats import encode
from sm90_case import UNORDERED, WRONG_RESULTS, Boxes, Case, broken, render
from sm90_products import window

OUTPUTS = [("bf16", False), ("f16", False), ("bf16", True), ("float", False)]
TYPES = {"float": np.float32, "bf16": np.uint16, "f16": np.uint16}


def random(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def whole_box(view, at, box):
    """The box at (z, y, x), with zeros where it lies outside."""
    out = np.zeros(box, view.dtype)
    for z in range(box[0]):
        if 0 <= at[0] + z < view.shape[0]:
            out[z] = window(view[at[0] + z], at[1], box[1], at[2], box[2])
    return out


def read(dtype, rows, at):
    """One batch of a tensor with odd sizes and something else behind each row."""
    name = f"read_box.{np.dtype(dtype).name}.rows{rows}.at{'_'.join(map(str, at))}"
    columns = 128 // np.dtype(dtype).itemsize
    limit = min(np.iinfo(dtype).max, 1 << 50)
    array = random(name).integers(1, limit, (3, 37, columns * 2), dtype)
    box = (1, rows, columns)
    return case_of_read(name, array, lambda whole: whole[..., : columns + 11], at, box)


def blocks_of_columns(rows, blocks):
    """Several blocks of 64 columns in one box: they are a dimension of the map, 128 bytes apart."""
    name = f"read_box.blocks{blocks}.rows{rows}"
    array = random(name).integers(1, 1 << 16, (61, 64 * blocks), np.uint16)

    def view(whole):
        return whole.reshape(61, blocks, 64).transpose(1, 0, 2)

    return case_of_read(name, array, view, (0, 30, 0), (blocks, rows, 64))


def case_of_read(name, array, view, at, box):
    rows = box[0] * box[1]
    want = whole_box(view(array), at, box).view(np.uint32).reshape(-1)
    place = [np.int32(first) for first in reversed(at)]
    return Case(
        name,
        render("read_box", {"kRows": rows}),
        [Boxes(array, box, view=view), np.zeros(rows * 32, np.uint32), *place],
        {1: want},
        shared=rows * 128 + 8,
    )


def store(output, transposed, tiles, n, row, column, clip):
    """Rows from `row` and columns from `column` on, into a tensor that ends `clip` before them, or
    at the next 16 bytes."""
    name = f"store.{output}{'.transposed' * transposed}.m{tiles * 64}.n{n}.clip{clip}"
    m = tiles * 64
    sums = random(name).standard_normal((m, n)).astype(np.float32)
    kept_m, kept_n = row + m - clip, column + n - clip
    shape = (kept_n, kept_m) if transposed else (kept_m, kept_n)
    per_unit = 16 // np.dtype(TYPES[output]).itemsize
    # A row that ends within 16 bytes is stored to the end of these.
    written = -(-shape[1] // per_unit) * per_unit
    more_m, more_n = (written - shape[1], 0) if transposed else (0, written - shape[1])
    array = np.full((3, shape[0], written + per_unit), 77, TYPES[output])
    kept = sums[max(-row, 0) : m - clip + more_m, max(-column, 0) : n - clip + more_n]
    stored = kept if output == "float" else encode(output, kept).astype(np.uint16)
    stored = stored.T if transposed else stored
    first = [max(column, 0), max(row, 0)] if transposed else [max(row, 0), max(column, 0)]
    want = array.copy()
    want[1, first[0] : shape[0], first[1] : written] = stored
    columns = 128 // want.itemsize
    alias = "" if output == "float" else f"namespace kiln {{ struct {output}; }}\n"
    scope = "" if output == "float" else "kiln::"
    constants = {
        "kTiles": tiles, "kN": n, "kTransposed": transposed,
        "text": f"{alias}using Output = {scope}{output};",
    }  # fmt: skip
    return Case(
        name,
        render("store", constants),
        [
            Boxes(array, (1, 64, columns), view=lambda whole: whole[..., : shape[1]]),
            sums, np.int32(row), np.int32(column), np.int32(1),
        ],
        {0: want},
        shared=2 * 64 * 128,
    )  # fmt: skip


CASES = [
    read(np.uint16, 64, (1, 0, 0)),
    read(np.uint16, 64, (1, -5, -8)),
    read(np.uint16, 8, (2, 33, 72)),
    read(np.uint8, 24, (0, 21, 16)),
    read(np.uint32, 40, (1, -3, 12)),
    read(np.uint16, 8, (3, 0, 0)),  # a batch that is not there: zeros
    blocks_of_columns(40, 3),
    blocks_of_columns(8, 2),
    *(
        store(output, transposed, tiles, n, row, column, clip)
        for output, transposed in OUTPUTS
        for tiles, n, row, column, clip in (
            (1, 64, 0, 0, 0),
            # The coordinate along rows of memory has to be a multiple of 16 bytes.
            (2, 192, *((8, 5) if transposed else (3, 8)), 27),
        )
    ),
]
STORE = next(case for case in CASES if case.name == "store.bf16.m128.n192.clip27")
TURNED = next(case for case in CASES if case.name == "store.bf16.transposed.m128.n192.clip27")

CASES += [
    broken(STORE, "no_proxy_fence", "fence.proxy.async", ("      fence_async_proxy();\n", "")),
    broken(STORE, "no_wait", UNORDERED, ("if (leads) wait_stores_read<1>();", "")),
    broken(STORE, "waits_for_one_too_few", UNORDERED, ("read<1>", "read<2>")),
    broken(STORE, "ends_too_early", "in flight", ("  if (leads) wait_stores_read<0>();\n", "")),
    broken(TURNED, "swapped_matrices", WRONG_RESULTS, ("top, bottom, next", "bottom, top, next")),
]
