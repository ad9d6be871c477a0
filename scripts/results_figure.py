#!/usr/bin/env python3
"""Draws docs/benchmarks/results.svg, the README's picture, from the tables of docs/performance/.

scripts/results_figure.py    (make docs; tests/python/test_pages.py fails while the figure is stale)
"""

from __future__ import annotations

import pathlib
import re
from xml.sax.saxutils import escape

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
FIGURE = DOCS / "benchmarks" / "results.svg"

# The colours of bench/plots.py, by peer.
COLOURS = {
    "cuDNN": "#3b6fb6",
    "cuBLAS": "#3b6fb6",
    "FA2": "#6fa8a0",
    "FA3": "#2f7d4f",
    "Triton": "#8c7fb8",
}
ONE = "one token, "
KEY = (
    (15, "FA2", "FA2"),
    (75, "FA3", "FA3"),
    (135, "cuDNN", "cuDNN, cuBLAS"),
    (265, "Triton", "Triton"),
)
# Title; how its table in docs/performance/ begins; how the rows begin; the column of each peer.
ATTENTION = (
    "attention, bf16, 512 to 16k keys",
    "| Hopper, 512 to 16k |",
    r"D\d+",
    {"FA3": 1, "cuDNN": 2},
)
DECODE = ("decoding, 32/8 heads, D128", "| decode, 32/8", ONE, {"FA2": 3, "cuDNN": 4})
PRODUCTS = {"cuBLAS": 2, "Triton": 3}
GEMM = ("GEMM, by dtype; layers are bf16", "| geometric means | cells |", "", PRODUCTS)
COLUMNS = ([ATTENTION, DECODE], [GEMM])

TITLE = "Time of a peer over Kiln's, on one H200; right of 1 Kiln is faster"
NOTE = (
    "Medians of calls that took turns in one process; geometric means of several shapes, but for "
    "decoding. cuBLAS, cuDNN and FA2 through PyTorch."
)

LIMIT, TICKS = 1.8, (0, 0.5, 1, 1.5)  # of the axis, a ratio of times
WIDTH, ROW, TOP, NAMES, PLOT, GAP = 860, 19, 62, 126, 270, 38


def table(text, start):
    """The rows of the first table whose header line starts so, as lists of cells."""
    lines = text[text.index("\n" + start) + 1 :].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[2:]]


def ratios(text, panel):
    """(row, {peer: peer's time over Kiln's}) of a panel."""
    _, start, wanted, peers = panel
    rows = [row for row in table(text, start) if re.match(wanted, row[0])]
    names = [row[0].removeprefix(ONE) for row in rows]
    values = [{peer: float(row[i]) for peer, i in peers.items() if row[i]} for row in rows]
    return list(zip(names, values))


def place(ratio, left):
    return left + NAMES + PLOT * ratio / LIMIT


def pages():
    """The text of all pages with figures."""
    paths = sorted((DOCS / "performance").glob("*.md"))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def draw(text):
    """The figure of the pages' text."""
    body, bottom = [], 0.0
    for index, panels in enumerate(COLUMNS):
        left = 10 + index * (NAMES + PLOT + GAP)
        y: float = TOP
        for panel in panels:
            rows = ratios(text, panel)
            body += _panel(panel[0], rows, left, y)
            y += ROW * (len(rows) + 2.8)
        bottom = max(bottom, y)
    note = _text(10, bottom, NOTE, size=10, fill="#666")
    return "\n".join([*_head(bottom + 12), *body, note, "</svg>", ""])


def _panel(title, rows, left, y):
    end = y + ROW * (len(rows) + 0.6)
    parts = [_text(left, y, title, weight="bold")]
    for tick in TICKS:
        x, strong = place(tick, left), tick == 1
        line = 'stroke="#333" stroke-width="1.4"' if strong else 'stroke="#ddd"'
        parts.append(f'<path d="M{x:.1f} {y + 6:.1f}V{end:.1f}" {line}/>')
        parts.append(_text(x, end + 13, f"{tick:g}", anchor="middle", size=10, fill="#666"))
    for number, (name, values) in enumerate(rows, 1):
        middle = y + ROW * number
        parts.append(_text(left + NAMES - 8, middle + 4, name, anchor="end"))
        for peer, ratio in values.items():
            parts.append(
                f'<circle cx="{place(ratio, left):.1f}" cy="{middle:.1f}" r="5" '
                f'fill="{COLOURS[peer]}"><title>{escape(name)}, {peer}: {ratio}</title></circle>'
            )
    return parts


def _head(height):
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>',
        _text(10, 20, TITLE, 14, "bold"),
    ]
    for x, peer, label in KEY:
        parts.append(f'<circle cx="{x}" cy="37" r="5" fill="{COLOURS[peer]}"/>')
        parts.append(_text(x + 9, 41, label))
    return parts


def _text(x, y, text, size=12, weight="normal", anchor="start", fill="#222"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
    )


def main():
    """Writes the figure."""
    FIGURE.write_text(draw(pages()), encoding="utf-8")
    print(FIGURE.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
