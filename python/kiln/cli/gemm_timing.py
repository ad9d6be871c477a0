"""Checks the tiles of one matrix product and measures them in turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .. import control, jit
from .turns import EPSILON, check_results, take_turns

Config = dict[str, int]

_TILE = ("block_m", "block_n", "block_k", "stages")
# Allowed errors relative to the largest output: sums in another order, and sums of 14 bits.
_SUM_ERROR, _FAST_SUM_ERROR = 2e-3, 2e-2


@dataclasses.dataclass(frozen=True)
class Kind:
    """The properties that all products of a table share."""

    dtype: str
    out_dtype: str
    layout: str
    precision: str  # "full" or "fast"

    @classmethod
    def of(cls, dtype: str, out_dtype: str | None, layout: str, precision: str) -> Kind:
        """Makes it of flags; without an output dtype, it is the default of a call."""
        is_f8 = dtype.startswith("float8")
        if precision == "fast" and not is_f8:
            raise ValueError("--precision fast needs a --dtype of 8-bit floats")
        return cls(dtype, out_dtype or ("bfloat16" if is_f8 else dtype), layout, precision)

    def options(self) -> dict[str, Any]:
        """The keywords of jit.gemm."""
        if self.dtype == "float32":
            return {"precision": "tf32"}
        return {"precision": "fast"} if self.precision == "fast" else {}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of one product."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}"


@dataclasses.dataclass(frozen=True)
class Measured:
    """The fastest tile, and the tile that the model chooses."""

    best: Config
    best_us: float
    model: Config
    model_us: float
    tiles: int  # how many were compared
    layout: str  # as a call sees it; a single row or column may be read either way

    @property
    def ratio(self) -> float:
        """The time of the model's tile over the best time."""
        return self.model_us / self.best_us


def tile_text(config: Config) -> str:
    """ "128x256x64x4", "64x128x64x9 splits 3"."""
    text = "x".join(str(config[name]) for name in _TILE)
    if config.get("cluster", 1) > 1:
        text += f" cluster {config['cluster']}"
    return text + (f" splits {config['splits']}" if "splits" in config else "")


def measure(kind: Kind, shape: Shape, gpu: Any, seconds: float, arch: str) -> Measured:
    """Compiles, checks and times every tile that can compute the product. Raises kiln.Error for a
    wrong result."""
    a, b = operands(kind, shape, gpu)
    out = gpu.empty((shape.m, shape.n), kind.out_dtype)
    explained = control.explain("gemm", a, b, out=out, **kind.options())
    tiles = (*_TILE, "cluster", "splits")
    properties = {
        name: value for name, value in explained["spec"].items() if name not in (*tiles, "op")
    }
    configs = control.gemm_configs(arch=arch, k=shape.k, **properties)
    model = _config_of(explained)
    if model not in configs:
        configs.append(model)
    compile_all(properties, configs, arch)

    def call(config: Config) -> Callable[[], object]:
        return lambda: jit.gemm(a, b, out=out, config=config, **kind.options())

    calls = {index: call(config) for index, config in enumerate(configs)}
    named = {tile_text(configs[i]): calls[i] for i in calls}
    check_results(f"tune gemm: {shape}", named, out, gpu, limit_of(kind))
    chosen = configs.index(model)
    times = take_turns(calls, gpu, seconds, always=chosen)
    best = min(times, key=times.__getitem__)
    return Measured(
        configs[best], times[best], model, times[chosen], len(configs), properties["layout"]
    )


def operands(kind: Kind, shape: Shape, gpu: Any) -> tuple[Any, Any]:
    """a [m, k] and b [k, n], stored as the layout says."""

    def matrix(rows: int, columns: int, stored: str) -> Any:
        if stored == "n":
            return gpu.random((rows, columns), kind.dtype)
        return gpu.random((columns, rows), kind.dtype).T

    a = matrix(shape.m, shape.k, kind.layout[0])
    return a, matrix(shape.k, shape.n, kind.layout[1])


def compile_all(properties: Mapping[str, Any], configs: list[Config], arch: str) -> None:
    """Compiles the kernels of these tiles, several at a time; a failure is raised by the call."""
    specs = []
    for config in configs:
        spec = {"op": "gemm", **properties, **config, "splits": "splits" in config}
        if spec not in specs:
            specs.append(spec)
    control.prewarm(specs, arch)


def limit_of(kind: Kind) -> Callable[[Any], Any]:
    """How far results of different tiles may be apart, as a function of their elements' sizes."""
    relative = 2 * EPSILON[kind.out_dtype]
    error = _FAST_SUM_ERROR if kind.precision == "fast" else _SUM_ERROR
    return lambda size: relative * size + error * size.max()


def _config_of(explained: Mapping[str, Any]) -> Config:
    spec = explained["spec"]
    config = {name: spec[name] for name in _TILE}
    if spec["cluster"] is not None:
        config["cluster"] = spec["cluster"]
    if spec["splits"]:
        config["splits"] = explained["splits"]
    return config
