"""Times the tiles of one matrix product beside each other, results checked first."""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from .. import Error, control, jit

Config = dict[str, int]

_TILE = ("block_m", "block_n", "block_k", "stages")
_EPSILON = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-23}
# Of the largest output: sums in another order, and those that the tensor cores keep in 14 bits.
_SUM_ERROR, _FAST_SUM_ERROR = 2e-3, 2e-2


@dataclasses.dataclass(frozen=True)
class Kind:
    """What all products of a table have in common."""

    dtype: str
    out_dtype: str
    layout: str
    precision: str  # "full" or "fast"

    def options(self) -> dict[str, Any]:
        """Keywords of jit.gemm."""
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
    """The fastest tile, and the one that the model chooses."""

    best: Config
    best_us: float
    model: Config
    model_us: float
    tiles: int  # that were compared
    layout: str  # as calls see it: a row or column alone may be read either way

    @property
    def ratio(self) -> float:
        """The model's time over the best one."""
        return self.model_us / self.best_us


def tile_text(config: Config) -> str:
    """ "128x256x64x4", "64x128x64x9 splits 3"."""
    text = "x".join(str(config[name]) for name in _TILE)
    if config.get("cluster", 1) > 1:
        text += f" cluster {config['cluster']}"
    return text + (f" splits {config['splits']}" if "splits" in config else "")


def measure(kind: Kind, shape: Shape, gpu: Any, seconds: float, arch: str) -> Measured:
    """Compiles, checks and times every tile that serves. Raises kiln.Error for a wrong result."""
    a, b = operands(kind, shape, gpu)
    out = gpu.empty(shape.m, shape.n, kind.out_dtype)
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
    check_results(kind, shape, gpu, out, {tile_text(configs[i]): calls[i] for i in calls})
    chosen = configs.index(model)
    times = take_turns(calls, gpu, seconds, always=chosen)
    best = min(times, key=times.__getitem__)
    return Measured(
        configs[best], times[best], model, times[chosen], len(configs), properties["layout"]
    )


def operands(kind: Kind, shape: Shape, gpu: Any) -> tuple[Any, Any]:
    """a [m, k] and b [k, n], stored as the layout says."""
    m, n, k = shape.m, shape.n, shape.k
    a = gpu.random(m, k, kind.dtype) if kind.layout[0] == "n" else gpu.random(k, m, kind.dtype).T
    b = gpu.random(k, n, kind.dtype) if kind.layout[1] == "n" else gpu.random(n, k, kind.dtype).T
    return a, b


def compile_all(properties: Mapping[str, Any], configs: list[Config], arch: str) -> None:
    """The kernels of these tiles into the cache, many at a time; a failure shows at the call."""
    specs = []
    for config in configs:
        spec = {"op": "gemm", **properties, **config, "splits": "splits" in config}
        if spec not in specs:
            specs.append(spec)
    control.prewarm(specs, arch)


def check_results(
    kind: Kind, shape: Shape, gpu: Any, out: Any, calls: Mapping[str, Callable[[], object]]
) -> None:
    """Every call fills `out` as the first one does, but for rounding."""
    expected = None
    relative = 2 * _EPSILON[kind.out_dtype]
    for name, call in calls.items():
        out.fill_(float("nan")) if hasattr(out, "fill_") else out.fill(float("nan"))
        call()
        values = gpu.as_float(out)
        if expected is None:
            first, expected = name, values
            size = abs(expected)
            error = _FAST_SUM_ERROR if kind.precision == "fast" else _SUM_ERROR
            limit = relative * size + error * size.max()
        if not bool((abs(values - expected) <= limit).all()):  # so that a NaN is no match
            raise Error(f"tune gemm: {shape}: the results of tiles {name} and {first} differ")


def take_turns(
    calls: Mapping[Hashable, Callable[[], object]],
    gpu: Any,
    seconds: float,
    always: Hashable = None,
    *,
    trial: int = 3,
    slack: float = 1.3,
    least: int = 7,
    most: int = 1000,
    now: Callable[[], float] = time.perf_counter,
) -> dict[Any, float]:
    """The median microseconds of each call, L2 flushed before each.

    Taking turns makes clock drift hit all alike; the order is shuffled, so that none always follows
    the same neighbour. After `trial` turns those slower than `slack` times the fastest are out, but
    for `always`. `seconds` bounds the whole, except that `least` turns are taken.
    """
    samples: dict[Hashable, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    start = now()
    for turn in range(most):
        if turn >= least and now() - start > seconds:
            break
        shuffle(order)
        events = {}
        for name in order:
            gpu.flush()
            before = gpu.event()
            calls[name]()
            events[name] = before, gpu.event()
        gpu.synchronize()
        for name, (before, after) in events.items():
            samples[name].append(gpu.microseconds(before, after))
        if turn + 1 == trial:
            medians = {name: statistics.median(samples[name]) for name in order}
            limit = slack * min(medians.values())
            order = [name for name in order if medians[name] <= limit or name == always]
    return {name: statistics.median(samples[name]) for name in order}


def _config_of(explained: Mapping[str, Any]) -> Config:
    spec = explained["spec"]
    config = {name: spec[name] for name in _TILE}
    if spec["cluster"] is not None:
        config["cluster"] = spec["cluster"]
    if spec["splits"]:
        config["splits"] = explained["splits"]
    return config
