"""The machine code of a cubin as text, made by one of NVIDIA's disassemblers."""

from __future__ import annotations

import collections
import glob
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable

from .. import _site, control
from .output import Unavailable

# Each tool with the flags that make it print only code.
_TOOLS = {"nvdisasm": ["--print-code"], "cuobjdump": ["-sass"]}
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)")


def find_disassembler() -> str:
    """The path of nvdisasm or cuobjdump. Raises Unavailable if there is neither."""
    for tool in _TOOLS:
        if found := shutil.which(tool):
            return found
    for folder in _folders():
        for tool in _TOOLS:
            path = os.path.join(folder, tool)
            if os.access(path, os.X_OK):
                return path
    raise Unavailable(
        "SASS needs nvdisasm or cuobjdump, and neither is on PATH, in CUDA_HOME or among pip's "
        "packages: install one with `pip install nvidia-cuda-nvdisasm`"
    )


def _folders() -> Iterable[str]:
    home = control.diagnose()["environment"]["CUDA_HOME"]
    yield from (os.path.join(root, "bin") for root in (home, "/usr/local/cuda") if root)
    for base in _site.nvidia_folders():
        yield from sorted(glob.glob(os.path.join(base, "nvidia", "*", "bin")), reverse=True)
        yield os.path.join(base, "triton", "backends", "nvidia", "bin")


def disassemble(tool: str, cubin: bytes) -> str:
    """The code of a cubin. Raises Unavailable if the tool cannot read it."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run(
            [tool, *_TOOLS[os.path.basename(tool)], file.name], capture_output=True, text=True
        )
    if run.returncode != 0:
        reason = " ".join(run.stderr.split()) or f"exit code {run.returncode}"
        raise Unavailable(
            f"{tool} cannot read this kernel ({reason}): install a newer one with "
            "`pip install -U nvidia-cuda-nvdisasm`"
        )
    return run.stdout


def count_opcodes(sass: str) -> dict[str, int]:
    """How often each instruction occurs, the most frequent first: {"HMMA": 512, ...}."""
    return dict(collections.Counter(_INSTRUCTION.findall(sass)).most_common())
