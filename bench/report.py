"""Tables, means and files. Ratios are a peer's time over ours: above 1 Kiln is the faster."""

from __future__ import annotations

import json
import math
from typing import Any

from cells import OURS

SCHEMA = 1
# The order of columns.
PEERS = ("cuDNN", "FA2", "FA3", "FA4", "FlashInfer", "cuBLAS", "FlexAttention", "Triton")
OWN = ("dense", "graph")  # other calls of Kiln's, which are nobody's peers
BEST = "best peer"


def table(headers, rows):
    """Aligned columns; the first one to the left."""
    cells = [list(map(str, headers))] + [[_cell(x) for x in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = []
    for row in cells:
        first = row[0].ljust(widths[0])
        lines.append("  ".join([first, *(x.rjust(w) for x, w in zip(row[1:], widths[1:]))]))
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def _cell(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def peers_of(results):
    """The peers that were timed in any cell, in the order of columns."""
    found = {name for result in results for name in result["ratios"]}
    return [name for name in PEERS if name in found] + sorted(found.difference(PEERS))


def groups(results):
    """By group: the number of cells, the geometric mean of each peer's ratios and of the best
    peers', and the worst cell, which is the one farthest behind its best peer."""
    found: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        if result["ratios"]:
            found.setdefault(result["group"], []).append(result)
    summaries = []
    for group, members in found.items():
        means = {
            name: geometric_mean(r["ratios"][name] for r in members if name in r["ratios"])
            for name in peers_of(members)
        }
        best = [min(_of_others(r["ratios"]).values()) for r in members]
        means[BEST] = geometric_mean(best)
        worst = min(range(len(members)), key=best.__getitem__)
        summaries.append({
            "group": group,
            "cells": len(members),
            "geomean": means,
            "worst": {"name": members[worst]["name"], "ratio": best[worst]},
        })  # fmt: skip
    return summaries


def _of_others(ratios):
    """Ratios of peers other than Kiln itself, or of all where no other took part."""
    return {name: ratio for name, ratio in ratios.items() if name not in OWN} or ratios


def cell_table(suite, results):
    names = peers_of(results)
    extra = [name for name in EXTRA if suite in EXTRA[name]]
    headers = [suite, "us", "+-%", "TFLOP/s", "GB/s", "/ floor", *(f"x {n}" for n in names)]
    headers += [header for name in extra for header in EXTRA_HEADERS[name]]
    headers.append("path")  # of Kiln's kernel: portable, or for one architecture
    rows = []
    for result in results:
        if OURS not in result["times"]:
            rows.append([result["name"], "failed", *[None] * (len(headers) - 2)])
            continue
        times = result["times"][OURS]
        row = [result["name"], times["median_us"], times["iqr_percent"], result["tflops"]]
        row += [result["gb_per_s"], result["times_floor"]]
        row += [result["ratios"].get(name) for name in names]
        row += [value for name in extra for value in _extra(name, result)]
        rows.append([*row, (result.get("config") or {}).get("path")])
    return table(headers, rows)


EXTRA = {
    "against_dense": ("window",), "over_plain_percent": ("epilogue",), "against_ways": ("variant",),
    "of_a_kernel": ("pdl",),
}  # fmt: skip
EXTRA_HEADERS = {
    "against_dense": ("causal x keys", "causal x tiles", "full x keys", "full x tiles"),
    "over_plain_percent": ("% over plain", "cuBLAS's %"),
    "against_ways": ("x first", "x first by pairs", "x built-in or cut"),
    "of_a_kernel": ("us/kernel", "cuBLAS's", "x off"),
}


def _extra(name, result):
    figures = result.get(name) or {}
    if name == "over_plain_percent":
        return [figures.get(OURS), figures.get("cuBLAS")]
    if name == "of_a_kernel":
        return [figures.get(key) for key in (OURS, "cuBLAS", "off")]
    if name == "against_ways":
        return [figures.get(key) for key in ("first", "first_by_pairs", "same")]
    masks = [figures.get(mask, {}) for mask in ("causal", "full")]
    return [mask.get(key) for mask in masks for key in ("over_keys", "over_tiles")]


def group_table(results):
    names = [*peers_of(results), BEST]
    summaries, rows = groups(results), []
    width = max(len(g["worst"]["name"]) for g in summaries)
    for g in summaries:
        means = [g["geomean"].get(name) for name in names]
        worst = [g["worst"]["ratio"], g["worst"]["name"].ljust(width)]  # text: to the left
        rows.append([g["group"], g["cells"], *means, *worst])
    headers = ["geometric means", "cells", *(f"x {n}" for n in names), "worst", "of".ljust(width)]
    return table(headers, rows)


def exceptions(results):
    """Lines about cells that failed, and about peers that were left out, by reason."""
    lines = [f"FAILED {r['name']}: {r['failed']}" for r in results if r["failed"]]
    left: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for name, why in result["left_out"].items():
            left.setdefault((name, why), []).append(result["name"])
    for (name, why), cells in left.items():
        more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
        lines.append(f"left out {name} in {', '.join(cells[:3])}{more}: {why}")
    return lines


def host_table(detail):
    from host_suite import BASE

    base = detail["host"].get(BASE, {}).get("median_us")
    rows = [
        [name, t["median_us"], t["iqr_percent"], t["median_us"] / base if base else None]
        for name, t in detail["host"].items()
    ]
    return table(["host time of a hot call", "us", "+-%", "/ Triton"], rows)


def save(folder, suite, document):
    """Writes SUITE.json; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{suite}.json"
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return path
