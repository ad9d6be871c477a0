"""What was measured, and in which state: machine, versions, clocks, and its measured ceilings."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import time

CLOCKS = {"clocks.sm": "sm_mhz", "power.draw": "power_w", "temperature.gpu": "celsius"}
LIMITS = {"clocks.max.sm": "max_sm_mhz", "power.limit": "power_limit_w"}
PATIENCE = 2.0  # seconds; a slow nvidia-smi must not stretch the run
COPY_BYTES = 1 << 30
CEILING_SIZE = 8192


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
    for package in ("kiln", "torch", "triton", "nvidia-cuda-nvrtc"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    import kiln

    found["kiln"] = kiln.__version__
    nvrtc = kiln.diagnose()["nvrtc"]
    found["nvrtc"] = f"{nvrtc.get('version', '')} {nvrtc.get('build', '')}".strip()
    try:
        import torch

        found["torch"] = torch.__version__
        found["cuda"] = torch.version.cuda
        if torch.cuda.is_available():
            found["cudnn"] = torch.backends.cudnn.version()
            found["driver"] = query_smi({"driver_version": "driver"}).get("driver")
    except ImportError:
        pass
    return {name: version for name, version in found.items() if version}


def _smi_command(fields):
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    import torch

    identity = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    return command + (["-i", f"GPU-{identity}"] if identity else [])


def parse_smi(text, fields):
    """The first line of nvidia-smi's answer, by our names; what is no number stays text."""
    values = (text.splitlines() or [""])[0].split(",")
    if len(values) != len(fields):
        return {}
    answer = {}
    for name, value in zip(fields.values(), values):
        try:
            answer[name] = float(value)
        except ValueError:
            answer[name] = value.strip()
    return answer


def query_smi(fields):
    """An empty dictionary where nvidia-smi is absent or refuses."""
    try:
        done = subprocess.run(_smi_command(fields), capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_smi(done.stdout, fields) if done.returncode == 0 else {}


class ClockSample:
    """One sample of clocks and power, taken by a child process while the caller works."""

    def __init__(self):
        try:
            self._process = subprocess.Popen(
                _smi_command(CLOCKS),
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        except OSError:
            self._process = None

    def finish(self):
        """The sample, or None. `late`: nvidia-smi had not answered when the work was done."""
        if self._process is None:
            return None
        late = self._process.poll() is None
        try:
            text, _ = self._process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return None
        sample = parse_smi(text, CLOCKS) if self._process.returncode == 0 else {}
        return {**sample, "late": late} if sample else None


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
    """The rates that floors are reckoned by: a device copy, and cuBLAS at 8192 cubed by dtype."""
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
    return rates


def _warm_up(call, seconds=0.3):
    """An idle device runs at low clocks for a while."""
    import torch

    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            call()
        torch.cuda.synchronize()
