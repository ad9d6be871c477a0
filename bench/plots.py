#!/usr/bin/env python3
"""Figures of the JSON files that bench/run.py writes: ratios by cell, and a roofline.

bench/plots.py build/bench/*.json --out docs/benchmarks
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any

from cells import OURS
from report import peers_of

COLOURS = {
    "kiln": "#c8442b",
    "cuDNN": "#3b6fb6",
    "cuBLAS": "#3b6fb6",
    "FA2": "#6fa8a0",
    "FA3": "#2f7d4f",
    "FA4": "#9bc53d",
    "FlashInfer": "#b5658f",
    "Triton": "#8c7fb8",
    "FlexAttention": "#c9a24b",
}
OTHER_COLOUR = "#888888"
MARKERS = {"attention": "o", "decode": "s", "gemm": "^", "window": "D", "epilogue": "v"}
DPI = 100
COLUMNS = 2  # panels beside each other
ALONE = 3  # groups of fewer cells share a panel
OTHERS = "others"
LAYERS = "layers"  # how the groups of models' layers begin


def load(paths):
    """The documents that have cells."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [document for document in documents if document.get("cells")]


def panels(results):
    """Cells by group, with the labels of their bars; small groups share the last panel."""
    found: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        if result["ratios"]:
            found.setdefault(result["group"], []).append(result)
    large = {g: [(r["label"], r) for r in m] for g, m in found.items() if len(m) >= ALONE}
    small = [(f"{g}, {r['label']}", r) for g, m in found.items() if len(m) < ALONE for r in m]
    return {**large, OTHERS: small} if small else large


def ratio_figures(document, pyplot):
    """Figures by name: bars of each peer's time over Kiln's. Layers of models have their own, as
    their panels share the names below."""
    layers = [r for r in document["cells"] if r["group"].startswith(LAYERS)]
    rest = [r for r in document["cells"] if not r["group"].startswith(LAYERS)]
    suite = document["suite"]
    figures = {
        f"{suite}_ratios": _ratio_figure(suite, document["machine"], rest, COLUMNS, pyplot),
        f"{suite}_layers": _ratio_figure(
            f"{suite}, layers of models", document["machine"], layers, 1, pyplot
        ),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _ratio_figure(title, machine, results, columns, pyplot):
    groups = panels(results)
    if not groups:
        return None
    peers = peers_of(results)
    columns = min(columns, len(groups))
    rows = math.ceil(len(groups) / columns)
    size = (5.2 * columns, 2.6 * rows + 0.6) if columns > 1 else (8, 1.4 * rows + 1.6)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=size, squeeze=False, sharey="row",
        sharex=columns == 1 and len({tuple(label for label, _ in c) for c in groups.values()}) == 1,
    )  # fmt: skip
    for axis, (group, cells) in zip(axes.flat, groups.items()):
        _bars(axis, group, cells, peers)
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for row in axes:
        row[0].set_ylabel("peer / Kiln", size=8)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colour(name)) for name in peers]
    figure.legend(handles, peers, loc="upper right", ncols=len(peers), frameon=False, fontsize=8)
    figure.suptitle(
        f"{title}: time over Kiln's, above 1 Kiln is faster", x=0.01, ha="left", size=11
    )
    figure.text(0.01, 0.005, machine, size=7, color="#666666")
    figure.tight_layout(rect=(0, 0.02, 1, 0.98))
    return figure


def _bars(axis, group, cells, peers):
    present = [name for name in peers if any(name in r["ratios"] for _, r in cells)]
    width = 0.8 / len(present)
    for i, name in enumerate(present):
        bars = [(x, r["ratios"][name]) for x, (_, r) in enumerate(cells) if name in r["ratios"]]
        places = [x - 0.4 + width * (i + 0.5) for x, _ in bars]
        axis.bar(places, [ratio for _, ratio in bars], width * 0.92, color=colour(name))
    axis.axhline(1, color="black", linewidth=1)
    long = max(len(label) for label, _ in cells) > 8
    axis.set_xticks(
        range(len(cells)), [label for label, _ in cells],
        size=7, rotation=40 if long else 0, ha="right" if long else "center",
    )  # fmt: skip
    axis.set_xlim(-0.6, max(len(cells), ALONE) - 0.4)
    axis.set_title(group, size=9, loc="left")
    _plain(axis)
    axis.grid(axis="y", color="#e4e4e4", linewidth=0.6)


def roofline_figure(documents, pyplot):
    """Arithmetic intensity against what Kiln and the best peer achieved, under the ceilings."""
    figure, axis = pyplot.subplots(figsize=(7.2, 4.8))
    points = []
    for document in documents:
        marker = MARKERS.get(document["suite"], "o")
        cells = [r for r in document["cells"] if OURS in r["times"]]
        intensity = [r["flops"] / r["bytes"] for r in cells]
        ours = [rate(r, OURS) for r in cells]
        rivals = [(x, best_rival(r)) for x, r in zip(intensity, cells) if r["ratios"]]
        axis.scatter(
            [x for x, _ in rivals], [y for _, y in rivals], s=26, marker=marker,
            facecolors="none", edgecolors=COLOURS["cuDNN"], linewidths=0.9,
        )  # fmt: skip
        axis.scatter(intensity, ours, s=22, marker=marker, color=COLOURS[OURS], linewidths=0)
        axis.scatter([], [], marker=marker, color="#444444", label=document["suite"])
        points += [*zip(intensity, ours), *rivals]
    axis.scatter([], [], color=COLOURS[OURS], label="Kiln")
    axis.scatter([], [], facecolors="none", edgecolors=COLOURS["cuDNN"], label="best peer")
    _ceiling(axis, documents[0]["ceilings"], points)
    axis.set_xlabel("operations per compulsory byte")
    axis.set_ylabel("TFLOP/s")
    axis.set_title("Roofline", size=10, loc="left")
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    _plain(axis)
    axis.grid(color="#eeeeee", linewidth=0.6)
    figure.text(0.01, 0.005, documents[0]["machine"], size=7, color="#666666")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


def _ceiling(axis, ceilings, points):
    """The measured copy and product rates as lines, from the least to the greatest intensity."""
    copy, product = ceilings["bytes_per_s"] / 1e12, ceilings["flops_per_s"]["bf16"] / 1e12
    ridge = product / copy
    left = min([x for x, _ in points] + [ridge]) / 2
    right = max([x for x, _ in points] + [ridge]) * 2
    axis.plot([left, ridge, right], [left * copy, product, product], color="black", linewidth=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    middle = math.sqrt(left * ridge)
    axis.annotate(
        f"copy {copy:.2f} TB/s", (middle, middle * copy), size=8, xytext=(-6, 4), ha="right",
        textcoords="offset points",
    )  # fmt: skip
    axis.annotate(
        f"bf16 product {product:.0f} TFLOP/s", (ridge, product), size=8, xytext=(0, 5),
        textcoords="offset points",
    )  # fmt: skip


def rate(result, name):
    """TFLOP/s of a call."""
    return result["flops"] / result["times"][name]["median_us"] / 1e6


def best_rival(result):
    return max(rate(result, name) for name in result["times"] if name != OURS)


def colour(name):
    return COLOURS.get(name, OTHER_COLOUR)


def _plain(axis):
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def draw(documents, folder):
    """Writes the figures; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    figures = {}
    for document in documents:
        figures.update(ratio_figures(document, pyplot))
    figures["roofline"] = roofline_figure(documents, pyplot)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        # No version of matplotlib in the file: the same numbers give the same bytes.
        figure.savefig(paths[-1], dpi=DPI, metadata={"Software": None})
        pyplot.close(figure)
    return paths


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", nargs="+", type=pathlib.Path, metavar="RESULT.json")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    documents = load(options.results)
    if not documents:
        print("bench/plots.py: none of these files has cells; run bench/run.py", file=sys.stderr)
        return 2
    for path in draw(documents, options.out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
