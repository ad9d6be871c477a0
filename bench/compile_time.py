"""Cold compile times, their share of parsing, peak memory, and the first call of a second process.

The suite compile. Needs NVRTC but no GPU; with one, the second process is measured too. One core
throughout.
"""

import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
ARCH = "sm_90"
SPECS = {
    "attention D128 causal 128x64": {
        "op": "flash_attention", "head_dim": 128, "mask": "causal", "block_q": 128, "block_kv": 64,
        "warps": 4,
    },
    "attention D64 causal 128x96": {
        "op": "flash_attention", "head_dim": 64, "mask": "causal", "block_q": 128, "block_kv": 96,
        "warps": 4,
    },
    "gemm 128x128 NT": {"op": "gemm", "layout": "nt", "block_m": 128, "block_n": 128, "stages": 3},
    # Among the slowest of those that serving uses: decoding, and prefill on Hopper.
    "attention D128 causal paged 64x64": {
        "op": "flash_attention", "head_dim": 128, "mask": "causal", "storage": "paged",
        "block_q": 64, "block_kv": 64, "warps": 4,
    },
    "attention D128 causal paged 128x128 (wgmma)": {
        "op": "flash_attention", "head_dim": 128, "mask": "causal", "storage": "paged",
        "block_q": 128, "block_kv": 128, "stages": 3, "splits": False, "grouped": False,
    },
}  # fmt: skip
# The first call of a variant compiles such a kernel; the aim is 1.2 s for the call.
HOPPER = {
    "op": "flash_attention", "head_dim": 128, "mask": "causal", "block_q": 192, "block_kv": 80,
    "stages": 2, "splits": False, "grouped": False,
}  # fmt: skip
VARIANTS = {
    "a user's mask": {"mask": "q - kv < w || kv < 64", "params": [["w", "i32"]]},
    "a user's logits": {"logits": "logit * f - f * abs(at.distance)", "params": [["f", "f32"]]},
    "documents": {"mask": "mine == its",
                  "tensors": [["mine", "i32[b, q]"], ["its", "i32[b, kv]"]]},
}  # fmt: skip
EMPTY = {"name": "users", "mask": "", "logits": "", "file_text": "", "params": [], "tensors": []}
for _name, _variant in VARIANTS.items():
    _tile = {"block_kv": 64} if _name == "documents" else {}
    SPECS[f"{_name}, D128 causal (wgmma)"] = {**HOPPER, **_tile, "variant": {**EMPTY, **_variant}}
TRIVIAL = 'extern "C" __global__ void kernel(float* x) { x[threadIdx.x] += 1.0f; }'


class Nvrtc:
    """NVRTC by ctypes: the same library, in the same process, for kernels that are not Kiln's."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        # From 12.9 on NVRTC keeps a cache of its own where a driver is; it would answer for us.
        self.no_cache = [b"--no-cache"] if (major.value, minor.value) >= (12, 9) else []
        folder = ROOT / "templates"
        files = sorted(p for p in folder.rglob("*") if p.suffix in (".cuh", ".h"))
        self.names = [f"/kiln/{p.relative_to(folder).as_posix()}".encode() for p in files]
        self.texts = [p.read_bytes() for p in files]

    def seconds(self, source):
        """From text to cubin."""
        start = time.perf_counter()
        count = len(self.names)
        program = ctypes.c_void_p()
        self._check("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"/k.cu", count,
                    (ctypes.c_char_p * count)(*self.texts),
                    (ctypes.c_char_p * count)(*self.names))  # fmt: skip
        options = [b"-std=c++17", b"-default-device", b"--gpu-architecture=" + ARCH.encode()]
        options += self.no_cache
        self._check("nvrtcCompileProgram", program, len(options),
                    (ctypes.c_char_p * len(options))(*options))  # fmt: skip
        size = ctypes.c_size_t()
        self._check("nvrtcGetCUBINSize", program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(size.value)
        self._check("nvrtcGetCUBIN", program, cubin)
        self._check("nvrtcDestroyProgram", ctypes.byref(program))
        return time.perf_counter() - start

    def _check(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        assert status == 0, f"{name} failed with {status}"


def measure_compiles():
    """Run in a fresh process on one core with an empty cache."""
    import kiln

    # The first trivial compile pays for opening NVRTC; ours are compared with the next ones.
    spec = next(iter(SPECS.values()))
    start = time.perf_counter()
    kiln.prewarm(spec, ARCH, jobs=1)
    first = time.perf_counter() - start
    nvrtc = Nvrtc(kiln.diagnose()["nvrtc"]["path"])
    trivial = statistics.median(nvrtc.seconds(TRIVIAL) for _ in range(5))
    kernels = {}
    for name, spec in SPECS.items():
        (kernel,) = kiln.inspect(spec, ARCH)
        source = kernel["source"]
        headers = source[: source.index('extern "C"')] + TRIVIAL
        reports, cpu = [], []
        for _ in range(5):
            start = time.process_time()
            reports.append(kiln.prewarm(spec, ARCH, jobs=1, recompile=True))
            cpu.append(time.process_time() - start)
        kernels[name] = {
            "seconds": statistics.median(r["kernels"][0]["seconds"] for r in reports),
            "cpu_seconds": statistics.median(cpu),
            "parsing": statistics.median(nvrtc.seconds(headers) for _ in range(5)) - trivial,
        }
    return {"first": first, "trivial": trivial, "kernels": kernels}


def measure_memory():
    """Peak resident megabytes of a process that compiles one kernel and does nothing else."""
    import kiln

    before = peak_megabytes()
    kiln.prewarm(SPECS["attention D128 causal 128x64"], ARCH, jobs=1)
    return {"before": before, "peak": peak_megabytes()}


def peak_megabytes():
    """Of this program alone; getrusage would count the parent's memory from before the exec."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM line")


def measure_second_process():
    """The first call of a process whose kernel is on the disk."""
    marks = [("start", time.perf_counter())]
    import torch

    marks.append(("import torch", time.perf_counter()))
    q, k, v = torch.randn(3, 1, 128, 2, 64, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(q)
    torch.cuda.synchronize()
    marks.append(("CUDA context, inputs", time.perf_counter()))
    import kiln
    from kiln import jit

    marks.append(("import kiln", time.perf_counter()))
    jit.flash_attention(q, k, v, causal=True, out=out)
    marks.append(("first call returns", time.perf_counter()))
    torch.cuda.synchronize()
    marks.append(("first result is there", time.perf_counter()))
    jit.flash_attention(q, k, v, causal=True, out=out)
    marks.append(("second call returns", time.perf_counter()))
    spans = {name: (t - marks[i][1]) * 1e3 for i, (name, t) in enumerate(marks[1:])}
    return {"milliseconds": spans, "stats": kiln.stats()}


def in_fresh_process(function, cache):
    """Calls a function of this file in a new process pinned to one core; returns its result."""
    code = f"import json, compile_time; print(json.dumps(compile_time.{function}()))"
    environment = dict(os.environ, KILN_CACHE_DIR=cache)
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True,
        check=True, preexec_fn=lambda: os.sched_setaffinity(0, [core]),
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def measure():
    """All of it; the second process where there is a GPU."""
    results = {"arch": ARCH}
    with tempfile.TemporaryDirectory() as cache:
        results["compiles"] = in_fresh_process("measure_compiles", cache)
    with tempfile.TemporaryDirectory() as cache:
        results["memory"] = in_fresh_process("measure_memory", cache)
    if gpu_is_there():
        with tempfile.TemporaryDirectory() as cache:
            in_fresh_process("measure_second_process", cache)
            results["second_process"] = in_fresh_process("measure_second_process", cache)
    return results


def gpu_is_there():
    # Not above: the measured processes import this file, and theirs is not to be PyTorch's memory.
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def describe(results):
    """The results as text."""
    from report import table

    compiles, memory = results["compiles"], results["memory"]
    trivial = compiles["trivial"]
    rows = [["trivial kernel", trivial, None, 1.0, None]] + [
        [
            name,
            k["seconds"],
            k["cpu_seconds"],
            k["seconds"] / trivial,
            100 * k["parsing"] / k["seconds"],
        ]
        for name, k in compiles["kernels"].items()
    ]
    parts = [
        table(["cold compile, one core", "s", "CPU s", "/ trivial", "% parsing"], rows),
        f"first compile of a process, NVRTC opened: {compiles['first']:.2f} s",
        f"peak memory: {memory['peak']:.0f} MB, {memory['before']:.0f} MB before the compile",
    ]
    if "second_process" in results:
        second = results["second_process"]
        parts.append(f"second process, NVRTC loaded: {second['stats']['nvrtc_loaded']}")
        parts.append(table(["step", "ms"], list(second["milliseconds"].items())))
    return "\n".join(parts)
