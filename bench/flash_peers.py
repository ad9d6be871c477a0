"""The peers of attention with a library of their own: FlashAttention-3, flash-attn-4, FlashInfer.

Each maker gives a Contender for given inputs, or raises Unavailable with the reason. What a library
refuses, it says itself when it is called, and it is left out with those words.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import runpy

import torch
from measure import Contender, Unavailable

FA3_PACKAGE = "flash_attn_interface"
FA3_FOLDER = "KILN_BENCH_FA3"  # an environment variable: a folder with a loader, fa3.py
FA3_BUILD = "fa3x"  # the one that the loader is asked for
WORKSPACE_BYTES = 256 << 20  # FlashInfer keeps the parts of split keys there


def fa3_build():
    """Which FlashAttention-3 takes part, for the record; None where there is none."""
    if importlib.util.find_spec(FA3_PACKAGE):
        try:
            return f"{FA3_PACKAGE} {importlib.metadata.version('flash_attn_3')}"
        except importlib.metadata.PackageNotFoundError:  # a module beside its shared library
            return FA3_PACKAGE
    folder = os.environ.get(FA3_FOLDER)
    return f"{FA3_BUILD} of {folder}" if folder else None


def fa3(cell, inputs):
    # The number of splits is FlashAttention's own choice: its default is not to split the keys.
    options = {"causal": cell.causal, "num_splits": 0}
    if cell.softcap:
        options["softcap"] = cell.softcap
    if importlib.util.find_spec(FA3_PACKAGE):
        attention = importlib.import_module(FA3_PACKAGE).flash_attn_func
        if cell.window:
            options["window_size"] = cell.window
    elif os.environ.get(FA3_FOLDER):
        attention = _fa3_of(os.environ[FA3_FOLDER])
        if cell.window:
            options["window_size_left"], options["window_size_right"] = cell.window
    else:
        raise Unavailable(f"{FA3_PACKAGE} is not installed and {FA3_FOLDER} is not set")
    return Contender(lambda index: attention(*inputs[index], **options), _output)


def fa3_of_folder():
    """attention(q, k, v, ...), packed or paged, of the build that KILN_BENCH_FA3 names."""
    if not os.environ.get(FA3_FOLDER):
        raise Unavailable(f"{FA3_FOLDER} is not set")
    return _fa3_of(os.environ[FA3_FOLDER])


@functools.lru_cache(maxsize=1)
def _fa3_of(folder):
    """attention(q, k, v, ...) of the folder's loader; a library is loaded once in a process."""
    path = pathlib.Path(folder) / "fa3.py"
    if not path.is_file():
        raise Unavailable(f"{FA3_FOLDER} is {folder}, where there is no fa3.py")
    loader = runpy.run_path(str(path))
    return functools.partial(loader["attention"], loader["load"](FA3_BUILD))


def _output(result):
    """Some versions return the log-sum-exp, too."""
    return result[0] if isinstance(result, tuple) else result


def fa4(cell, inputs):
    try:
        from flash_attn.cute.interface import flash_attn_func
    except ImportError as error:
        raise Unavailable(f"flash-attn-4 is not installed: {error}") from error
    # The keys are not split: on sm_90 flash-attn-4 does not know how to, and would stop there.
    options = {"causal": cell.causal}
    if cell.softcap:
        options["softcap"] = cell.softcap
    if cell.window:
        options["window_size"] = tuple(None if reach < 0 else reach for reach in cell.window)
    return Contender(lambda index: flash_attn_func(*inputs[index], **options), _output)


def flashinfer(cell, inputs):
    try:
        from flashinfer import BatchPrefillWithRaggedKVCacheWrapper
    except ImportError as error:
        raise Unavailable(f"FlashInfer is not installed: {error}") from error
    if cell.decode:
        raise Unavailable("FlashInfer decodes from paged caches, and these are contiguous")
    q = inputs[0][0]
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
    wrapper = BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
    count = torch.arange(cell.batch + 1, dtype=torch.int32, device=q.device)
    wrapper.plan(
        count * cell.len_q, count * cell.len_kv, cell.heads, cell.heads_kv, cell.dim,
        head_dim_vo=cell.value_dim, causal=cell.causal, logits_soft_cap=cell.softcap or None,
        window_left=-1 if cell.left is None else cell.left, q_data_type=q.dtype,
    )  # fmt: skip
    sets = [tuple(x.flatten(0, 1) for x in tensors) for tensors in inputs]
    return Contender(
        lambda index: wrapper.run(*sets[index]), lambda out: out.unflatten(0, (cell.batch, -1))
    )
