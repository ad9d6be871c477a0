"""What was measured, and in which state: machine, versions, clocks, and its measured ceilings."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import platform
import time

from nvml import Nvml

PEERS = ("flash-attn-4", "flashinfer-python")  # packages; FlashAttention-3 may be a folder
COPY_BYTES = 1 << 30
CEILING_SIZE = 8192


def lacking(program, *packages):
    """Returns a sentence about what a program with a model of a framework lacks here, or None."""
    for package in ("kiln", "torch", *packages):
        if importlib.util.find_spec(package) is None:
            return f"{program} needs the package {package}; pip install it first."
    import torch

    if not torch.cuda.is_available():
        return f"{program} needs a CUDA GPU, and PyTorch finds none."
    return None


def machine():
    """One line."""
    try:
        import torch
    except ImportError:
        return "no GPU, no PyTorch"
    if not torch.cuda.is_available():
        return f"no GPU, PyTorch {torch.__version__}"
    properties = torch.cuda.get_device_properties(0)
    return (
        f"{properties.name}, {properties.multi_processor_count} SMs, "
        f"CUDA {torch.version.cuda}, PyTorch {torch.__version__}"
    )


def versions():
    """Of everything that takes part; what is absent is absent here too."""
    found = {"python": platform.python_version()}
    for package in ("kiln", "torch", "triton", "nvidia-cuda-nvrtc", *PEERS):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    import kiln

    found["kiln"] = kiln.__version__
    nvrtc = kiln.diagnose()["nvrtc"]
    found["nvrtc"] = f"{nvrtc.get('version', '')} {nvrtc.get('build', '')}".strip()
    try:
        import flash_peers
        import torch

        found["FA3"] = flash_peers.fa3_build()
        found["torch"] = torch.__version__
        found["cuda"] = torch.version.cuda
        if torch.cuda.is_available():
            found["cudnn"] = torch.backends.cudnn.version()
            found["driver"] = gauge().driver()
    except ImportError:
        pass
    return {name: version for name, version in found.items() if version}


@functools.lru_cache(maxsize=1)
def gauge():
    """Of the device that is measured."""
    import torch

    return Nvml(getattr(torch.cuda.get_device_properties(0), "uuid", ""))


def _copy_rate():
    import torch
    from timing import best_seconds

    source = torch.empty(COPY_BYTES, dtype=torch.int8, device="cuda").random_()
    target = torch.empty_like(source)

    def copy():
        target.copy_(source)

    _warm_up(copy)
    return 2 * COPY_BYTES / best_seconds(copy)


def ceilings():
    """The rates that floors are reckoned by: a copy on the device, cuBLAS(Lt) at 8192 cubed."""
    import torch
    from timing import best_seconds

    rates = {"bytes_per_s": _copy_rate(), "flops_per_s": {}}
    shape = (CEILING_SIZE, CEILING_SIZE)
    for name, dtype in {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "tf32": torch.float32,
    }.items():
        a, b = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        seconds = best_seconds(lambda a=a, b=b, out=out: torch.matmul(a, b.mT, out=out))
        rates["flops_per_s"][name] = 2 * CEILING_SIZE**3 / seconds
    rates["flops_per_s"] |= _f8_rates()
    return rates


def _f8_rates():
    """Of 8-bit floats with the tensor cores' own sums, for both kinds; none before sm_89."""
    import torch
    from timing import best_seconds

    if torch.cuda.get_device_capability() < (8, 9):
        return {}
    shape, one = (CEILING_SIZE, CEILING_SIZE), torch.ones((), device="cuda")
    a, b = (torch.randn(shape, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))

    def product():
        torch._scaled_mm(
            a, b.mT, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    rate = 2 * CEILING_SIZE**3 / best_seconds(product)
    return dict.fromkeys(("f8", "f8 fast", "f8 blocks", "e4m3"), rate)


def _warm_up(call, seconds=0.3):
    """An idle device runs at low clocks for a while."""
    import torch

    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            call()
        torch.cuda.synchronize()
