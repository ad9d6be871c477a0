"""The grids: which cells a suite measures, in full and in its short form.

A grid is a list of batches. The cells of a batch have the same inputs and take turns in one timing,
so that they may be compared with each other; most batches are of one cell.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

from cells import (
    ITEM_BYTES,
    AppendCell,
    AttentionCell,
    GemmCell,
    MergeCell,
    MoeCell,
    NormCell,
    PdlCell,
    QuantizeCell,
    length_label,
)
from group_cells import groups
from serving_cells import serving
from variant_cells import variant

MODELS = pathlib.Path(__file__).parents[1] / "python" / "kiln" / "data" / "models.json"
LAYER_MODELS = ("Llama-3.1-8B", "Llama-3.1-70B", "Qwen2.5-7B")
# Not in the table of models: its attention is of a kind of its own.
DEEPSEEK_V3 = {
    "qkv_a": (2112, 7168),
    "q_b": (24576, 1536),
    "kv_b": (32768, 512),
    "o": (7168, 16384),
}
# Prompts have any number of tokens: 157, 333, 700 and 1500 are rows that no tile of 128 fills.
LAYER_ROWS = (1, 16, 64, 128, 157, 256, 333, 512, 700, 1500, 2048, 4096)
PREFILL = 4096
TOKENS = 16384  # of all sequences together
WIDTH = 2048  # heads * head_dim
CHUNKS = (512, 1024, 1536, 2048, 8192)  # queries of a chunk of a long prompt
CACHE = 65536  # keys that such a chunk sees, its own included
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
EPILOGUES = ("plain", "bias", "relu+bias", "silu", "residual", "gelu", "swiglu")


def models():
    table = json.loads(MODELS.read_text(encoding="utf-8"))
    return {name: table[name] for name in LAYER_MODELS}


def attention(short=False):
    lengths: dict[int, tuple[int, ...]] = dict.fromkeys((64, 128, 256), LENGTHS)
    if short:
        lengths = {64: (8192,), 128: (1024, 8192), 256: (8192,)}
    cells = [
        _square(dim, causal, length)
        for dim in lengths
        for causal in (False, True)
        for length in lengths[dim]
    ]
    for heads in (32,) if short else (32, 64):
        shape = (2, 8192, 8192, heads, 8, 128)
        cells.append(AttentionCell(*shape, True, group="D128 causal GQA", label=f"{heads}/8 8k"))
    if not short:
        for causal in (False, True):
            label = f"{'causal' if causal else 'full'} 4k"
            cells.append(_square(128, causal, 4096, dtype="fp16", group="D128 fp16", label=label))
        softcap = {"softcap": 30.0, "group": "D128 causal softcap", "label": "4k"}
        cells.append(_square(128, True, 4096, **softcap))
        cells += [_prefill(name, model) for name, model in models().items()]
        cells += _head_dims() + _unaligned() + _chunks()
    cells += _bytes()[:2] if short else _bytes()
    return [[cell] for cell in cells]


def _square(dim, causal, length, **more):
    heads = WIDTH // dim
    names = {"group": f"D{dim} {'causal' if causal else 'full'}", "label": length_label(length)}
    return AttentionCell(
        TOKENS // length, length, length, heads, heads, dim, causal, **{**names, **more}
    )


def _prefill(name, model):
    return AttentionCell(
        1, PREFILL, PREFILL, model["heads"], model["kv_heads"], model["head_dim"], True,
        title=name, group="prefill of models", label=name,
    )  # fmt: skip


def _head_dims():
    """Head dims that are no power of two; in the last, DeepSeek's, V's is not K's."""
    return [
        AttentionCell(
            2, 8192, 8192, 16, 16, dim, True,
            group="head dims, causal 8k", label=label, dim_v=dim_v,
        )
        for label, dim, dim_v in (("96", 96, 96), ("192", 192, 192), ("192/128", 192, 128))
    ]  # fmt: skip


def _unaligned():
    """A length that no tile divides."""
    shape, group = (4, 4001, 4001, 16, 16, 128), "D128 unaligned"
    return [
        AttentionCell(*shape, False, group=group, label="full 4001"),
        AttentionCell(*shape, True, group=group, label="causal 4001"),
    ]


def _bytes():
    """Queries, keys and values of e4m3."""
    shapes = ((1, 16384, 16, 16), (2, 8192, 16, 16), (3, 6000, 24, 8), (1, 9000, 8, 8))
    return [
        AttentionCell(
            batch, length, length, heads, heads_kv, 128, causal, dtype="e4m3",
            group=f"D128 {'causal' if causal else 'full'} e4m3",
            label=f"{batch} x {length_label(length)}",
        )
        for batch, length, heads, heads_kv in shapes
        for causal in (False, True)
    ]  # fmt: skip


def _chunks():
    """A chunk of a long prompt: few queries, and all the keys before them."""
    return [
        AttentionCell(
            1, chunk, CACHE, heads, heads_kv, 128, True,
            group=f"chunk of 64k, {heads}/{heads_kv}", label=length_label(chunk),
        )
        for heads, heads_kv in ((8, 8), (16, 16), (32, 8))
        for chunk in CHUNKS
    ]  # fmt: skip


def decode(short=False):
    """One query token for each sequence; then four, as speculative decoding has them."""
    shapes = [(1, 1, 8192), (16, 1, 8192), (64, 1, 8192), (128, 1, 4096), (4, 1, 32768)]
    shapes.append((16, 4, 8192))
    cells = []
    for batch, len_q, len_kv in shapes:
        label = f"{batch} x {length_label(len_kv)}"
        group = "one token" if len_q == 1 else f"{len_q} tokens"
        cells.append(
            AttentionCell(
                batch, len_q, len_kv, 32, 8, 128, len_q > 1, group=group, label=label, decode=True
            )
        )
    return [[cell] for cell in (cells[i] for i in (0, 2, 5))] if short else [[c] for c in cells]


def window(short=False):
    """Windows beside the dense masks of the same shape; the last shape is gpt-oss's."""
    shapes = {
        "S 8k": (1, 8192, 8192, 16, 16, 128),
        "S 32k": (1, 32768, 32768, 16, 16, 128),
        "D64 64/8 4k": (4, 4096, 4096, 64, 8, 64),
    }
    batches = []
    for group, shape in shapes.items():
        if short and group != "S 8k":
            continue
        batches.append([
            AttentionCell(*shape, False, group=group, label="full"),
            AttentionCell(*shape, True, group=group, label="causal"),
            AttentionCell(*shape, True, 128, group=group, label="window 128"),
            AttentionCell(*shape, True, 1024, group=group, label="window 1024"),
        ])  # fmt: skip
    return batches


F8_SHAPES = [(8192, 8192, 8192), (4096, 4096, 4096), (4096, 7168, 16384), (4096, 24576, 7168)]
# Those that DeepGEMM publishes, few rows, and some that nobody tuned for.
F8_BLOCK_SHAPES = [
    (8192, 8192, 8192),
    (4096, 7168, 16384),
    (4096, 4096, 7168),
    (4096, 2112, 7168),
    (4096, 32768, 512),
    (1, 7168, 16384),
    (16, 7168, 16384),
    (64, 7168, 16384),
    (64, 2112, 7168),
    (4096, 3072, 6144),
    (2048, 16384, 8192),
    (333, 5120, 8192),
]
GEMM_SHAPES = {
    "bf16 M >= 1024": [
        (8192, 8192, 8192),
        (4096, 4096, 4096),
        (2048, 2048, 2048),
        (16384, 4096, 4096),
        (4096, 28672, 8192),
        (4096, 8192, 28672),
        (1024, 4096, 4096),
        (8192, 5120, 5120),
    ],
    "bf16 M < 1024": [
        (128, 4096, 4096),
        (64, 28672, 8192),
        (16, 4096, 14336),
        (1, 4096, 4096),
    ],
    "bf16 unaligned": [(4095, 4097, 4099)],
    "fp16": [(8192, 8192, 8192), (4096, 4096, 4096)],
    "tf32": [(8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (512, 4096, 4096)],
    "f8": F8_SHAPES,
    "f8 fast": F8_SHAPES,
    "f8 blocks": F8_BLOCK_SHAPES,
}
SHORT_GEMM = {
    "bf16 M >= 1024": [(8192, 8192, 8192), (4096, 4096, 4096), (1024, 4096, 4096)],
    "bf16 M < 1024": [(64, 28672, 8192), (16, 4096, 14336), (1, 4096, 4096)],
    "tf32": [(4096, 4096, 4096)],
}


def gemm(short=False):
    cells = []
    for group, shapes in (SHORT_GEMM if short else GEMM_SHAPES).items():
        for m, n, k in shapes:
            label = f"{m}x{n}x{k}"
            dtype = group if group in ITEM_BYTES else group.split()[0]
            cells.append(GemmCell(m, n, k, dtype, group=group, label=label))
    for layout in () if short else ("nn", "tn", "tt"):
        names = {"group": "layouts", "label": layout}
        cells.append(GemmCell(4096, 4096, 4096, layout=layout, **names))
    return [[cell] for cell in cells + _layers(short)]


def _layers(short):
    cells = []
    for m in (16, 700, 4096) if short else LAYER_ROWS:
        layers = {name: model["gemm"] for name, model in models().items()}
        for name, shapes in {**layers, "DeepSeek-V3": DEEPSEEK_V3}.items():
            for layer, (n, k) in shapes.items():
                if layer == "lm_head" and m > 64:
                    continue  # of the last tokens alone
                if short and (name != LAYER_MODELS[0] or layer not in ("qkv", "down")):
                    continue
                names = {"title": f"{name} {layer}", "label": f"{name} {layer}"}
                cells.append(GemmCell(m, n, k, group=f"layers M = {m}", **names))
    return cells


def epilogue(short=False):
    return [[GemmCell(4096, 4096, 4096, epilogue=e, group="epilogues", label=e) for e in EPILOGUES]]


# Those that the tables were tuned on, and others.
TUNED_NORMS = ((8192, 4096), (4096, 8192), (16384, 5120), (32768, 2048), (65536, 1024))
OTHER_NORMS = ((12000, 3072), (9000, 6144), (20000, 2560), (6000, 10240), (5000, 12288))


def norm(short=False):
    cells = []

    def add(group, rows, columns, **more):
        cells.append(NormCell(rows, columns, group=group, label=f"{rows}x{columns}", **more))

    shapes = {"norms, tuned on": TUNED_NORMS, "norms, others": OTHER_NORMS}
    for group, members in shapes.items():
        for rows, columns in members[:2] if short else members:
            add(group, rows, columns)
            add(group, rows, columns, kind="layer_norm")
            add(group, rows, columns, residual=True)
    few = [(rows, 4096) for rows in (1, 16, 64, 256)] + [(rows, 65536) for rows in (1, 8, 32)]
    for rows, columns in few[::3] if short else few:
        add("norms, few rows", rows, columns)
    if not short:
        add("norms, others", 8192, 4096, kind="layer_norm", activation="gelu")
        add("norms, tuned on", 8192, 4096, dtype="fp32")
    return [[cell] for cell in cells]


def merge(short=False):
    """Two parts of a prompt, four and eight devices that share a context, and few tokens."""
    shapes = [(2, 4096), (2, 65536), (4, 4096), (8, 4096), (8, 64)]
    cells = [MergeCell(parts, tokens) for parts, tokens in (shapes[:2] if short else shapes)]
    if not short:
        cells += [MergeCell(2, 4096, head_dim=dim) for dim in (64, 256)]
        cells += [MergeCell(2, 4096, dtype="fp32")]
    return [
        [dataclasses.replace(cell, group="merging", label=f"{cell.parts}x{cell.tokens}")]
        for cell in cells
    ]


def append(short=False):
    """Llama's 8 heads at 4k and 64k tokens, and Qwen3's fusion; other caches, and few tokens."""
    plain = [AppendCell(4096), AppendCell(65536)]
    fused = [dataclasses.replace(cell, heads=32) for cell in plain]
    cells = plain + fused
    if not short:
        cells += [dataclasses.replace(cell, cache=dtype) for cell in (plain[1], fused[1])
                  for dtype in ("e4m3", "int8")]  # fmt: skip
        cells += [dataclasses.replace(cell, hnd=True) for cell in (plain[1], fused[1])]
        cells += [AppendCell(65536, head_dim=64), AppendCell(65536, heads_kv=1)]
        cells += [AppendCell(64), AppendCell(64, heads=32)]
    return [
        [dataclasses.replace(cell, group="appending", label=cell.name.removeprefix("append_kv "))]
        for cell in cells
    ]


def quantize(short=False):
    """DeepSeek-V3's activations: of 128 columns, of rows, after SwiGLU; few rows."""
    cells = [QuantizeCell(4096, 7168), QuantizeCell(4096, 7168, size=None)]
    if not short:
        cells += [QuantizeCell(32768, 2048, gated=True), QuantizeCell(8192, 18432, gated=True)]
        cells += [QuantizeCell(4096, 16384, size=None), QuantizeCell(64, 7168)]
    return [
        [dataclasses.replace(cell, group="quantising", label=cell.name.removeprefix("quantize "))]
        for cell in cells
    ]


def moe(short=False):
    """The steps of DeepSeek-V3's experts and of Mixtral's, in prefill and in decode."""
    shapes = [(4096, 256, 8, 7168)]
    if not short:
        shapes += [(128, 256, 8, 7168), (16384, 128, 8, 4096), (4096, 8, 2, 4096)]
    cells = [
        MoeCell(step, tokens, experts, top_k, columns)
        for step in ("route", "permute", "unpermute")
        for tokens, experts, top_k, columns in shapes
    ]
    return [
        [dataclasses.replace(cell, group="experts", label=cell.name.removeprefix("moe_"))]
        for cell in cells
    ]


def pdl(short=False):
    """Ten GEMMs of two layers and a half of Llama-3.1-8B in decode."""
    layer = json.loads(MODELS.read_text(encoding="utf-8"))[LAYER_MODELS[0]]["gemm"]
    names = ("qkv", "o", "gate_up", "down")
    shapes = tuple(tuple(layer[names[i % 4]]) for i in range(10))
    return [
        [
            PdlCell(m, shapes, pdl, title="Llama-3.1-8B", group="ten GEMMs in a graph",
                    label=f"M{m} pdl {pdl}")
            for pdl in ("off", "on", "weights")
        ]
        for m in ((1,) if short else (1, 16))
    ]  # fmt: skip


GRIDS = {
    "attention": attention,
    "decode": decode,
    "gemm": gemm,
    "window": window,
    "epilogue": epilogue,
    "norm": norm,
    "serving": serving,
    "merge": merge,
    "append": append,
    "variant": variant,
    "quantize": quantize,
    "moe": moe,
    "groups": groups,
    "pdl": pdl,
}


def grid(suite, short=False, text=""):
    """A suite's batches, of the cells whose names hold `text`."""
    batches = GRIDS[suite](short)
    chosen = [[cell for cell in batch if text.lower() in cell.name.lower()] for batch in batches]
    return [batch for batch in chosen if batch]
