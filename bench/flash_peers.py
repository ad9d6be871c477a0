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
_RAGGED = "BatchPrefillWithRaggedKVCacheWrapper"


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
    """Packed tensors, planned beforehand: it plans on the host, once for the layers of a step."""
    if cell.decode:
        raise Unavailable("FlashInfer decodes from paged caches, and these are contiguous")
    q, k, _ = inputs[0]
    wrapper = _flashinfer_wrapper(_RAGGED, q)
    count = torch.arange(cell.batch + 1, dtype=torch.int32, device=q.device)
    wrapper.plan(
        count * cell.len_q, count * cell.len_kv, cell.heads, cell.heads_kv, cell.dim,
        head_dim_vo=cell.value_dim, causal=cell.causal, logits_soft_cap=cell.softcap or None,
        window_left=-1 if cell.left is None else cell.left, **_flashinfer_types(q),
    )  # fmt: skip
    sets = [tuple(x.flatten(0, 1) for x in tensors) for tensors in inputs]
    # It takes the scales of 8-bit elements, one number for each head.
    ones = [torch.ones(x.shape[2], device=q.device) for x in (q, k, k)] if q.itemsize == 1 else []
    return Contender(
        lambda index: wrapper.run(*sets[index], *ones),
        lambda out: out.unflatten(0, (cell.batch, -1)),
    )


def flashinfer_serving(cell, inputs):
    """A maker for the inputs of serving_suite.py: packed, in pages, or one query of each sequence.

    The calls of an input set have a wrapper of their own, which keeps what was planned for it.
    """
    prefills, is_paged = max(cell.lens_q) > 1, cell.page > 0
    if not prefills and not is_paged:
        raise Unavailable("FlashInfer decodes from paged caches, and these are contiguous")
    if cell.cache or cell.graph:
        raise Unavailable("not measured with an 8-bit cache, nor in graphs")
    name = "BatchPrefillWithPagedKVCacheWrapper" if is_paged else _RAGGED
    if not prefills:
        name = "BatchDecodeWithPagedKVCacheWrapper"
    # FlashInfer's users take its tensor-core kernels to decode where heads share keys so.
    more = {} if prefills else {"use_tensor_cores": cell.heads >= 4 * cell.heads_kv}
    calls = []
    for x in inputs:
        wrapper = _flashinfer_wrapper(name, x.q, **more)
        options = {"window_left": -1 if cell.left is None else cell.left, **_flashinfer_types(x.q)}
        heads = cell.heads, cell.heads_kv, cell.dim
        if not is_paged:
            wrapper.plan(x.starts_q, x.starts_k, *heads, causal=True, **options)
        elif prefills:
            pages = flashinfer_pages(x.table, cell.lens_k, cell.page)
            wrapper.plan(x.starts_q, *pages, *heads, cell.page, causal=True, **options)
        else:
            pages = flashinfer_pages(x.table, cell.lens_k, cell.page)
            wrapper.plan(*pages, *heads, cell.page, **options)
        keys = (tuple(x.keys),) if is_paged else x.keys
        calls.append(functools.partial(wrapper.run, x.q, *keys))
    return Contender(lambda index: calls[index]())


def flashinfer_pages(table, lengths, page):
    """A block table as FlashInfer takes it: where the pages of each sequence begin in one list, the
    list, and how many keys each sequence's last page has."""
    counts = [-(-length // page) for length in lengths]
    starts = torch.tensor([0, *counts]).cumsum(0)
    listed = torch.cat([row[:count] for row, count in zip(table, counts)])
    last = torch.tensor([length - (count - 1) * page for length, count in zip(lengths, counts)])
    return tuple(x.to(dtype=torch.int32, device=table.device) for x in (starts, listed, last))


def _flashinfer_types(q):
    """Keywords of plan(): 8-bit inputs give bfloat16."""
    return {
        "q_data_type": q.dtype,
        "kv_data_type": q.dtype,
        "o_data_type": torch.bfloat16 if q.itemsize == 1 else q.dtype,
    }


def _flashinfer_wrapper(name, q, **more):
    try:
        wrapper = getattr(importlib.import_module("flashinfer"), name)
    except ImportError as error:
        raise Unavailable(f"FlashInfer is not installed: {error}") from error
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
    return wrapper(workspace, "NHD", **more)
