"""Prewarming of a process group: one rank compiles, and sends the kernels to the others."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable
from typing import Any

from . import _core, bundle

_DIGEST_BYTES = 32


def prewarm_group(group: Any, prewarm: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Runs `prewarm` on the first rank of a torch.distributed group, brings its kernels into the
    caches of all ranks, and returns its report on each. A collective call.

    Every rank takes part in every collective whatever happens to it, and raises afterwards: so a
    failure of one rank makes none wait. Nothing is pickled.
    """
    link = _Link(group)
    failure: BaseException | None = None
    text = bundled = b""
    if link.rank == 0:
        try:
            report = prewarm()
            text = json.dumps(report).encode()
            bundled = bundle.pack(bundle.read_kernels(_keys(report)))
        except BaseException as error:  # Ctrl-C, too: the others are waiting
            failure, text = error, json.dumps(f"{type(error).__name__}: {error}").encode()
    told = json.loads(link.broadcast(text))
    if failure is not None:
        raise failure
    if isinstance(told, str):
        raise _core.Error(f"prewarm: the first rank of the group failed, with {told}")
    _share(link, told, link.broadcast(bundled))
    return told


def _share(link: _Link, report: dict[str, Any], bundled: bytes) -> None:
    """Brings the bundle into this rank's cache, and compares what all ranks then have."""
    problem, digest = "", bytes(_DIGEST_BYTES)
    interruption: BaseException | None = None
    try:
        if link.rank != 0:
            bundle.store(bundle.unpack(bundled, "the bundle of the first rank"), replace=True)
        digest = _digest(_keys(report))
    except BaseException as error:  # Ctrl-C, too: the others are waiting
        problem = f"{type(error).__name__}: {error}"
        interruption = None if isinstance(error, Exception) else error
    problems = [text.decode() for text in link.gather(problem.encode())]
    digests = link.gather(digest)
    if interruption is not None:
        raise interruption
    failed = [f"rank {rank}: {text}" for rank, text in enumerate(problems) if text]
    if failed:
        raise _core.Error(
            f"prewarm: not every rank of the group could import the kernels: {'; '.join(failed)}"
        )
    differing = [str(rank) for rank, one in enumerate(digests) if one != digests[0]]
    if differing:
        raise _core.Error(
            "prewarm: the kernels of these ranks of the group differ from those of its first: "
            f"{', '.join(differing)}; give these ranks a writable KILN_CACHE_DIR"
        )


def _keys(report: dict[str, Any]) -> list[str]:
    have = ("compiled", "cached")
    return [kernel["key"] for kernel in report["kernels"] if kernel["outcome"] in have]


def _digest(keys: list[str]) -> bytes:
    """The digest of what this rank's cache has: an entry's JSON file holds those of its others."""
    kernels = bundle.read_kernels(keys)
    return hashlib.sha256(b"".join(kernel.json for kernel in kernels)).digest()


class _Link:
    """Bytes between the ranks of a group, as tensors on a device that its backend takes."""

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist, self._group = torch, dist, group
        self.rank = dist.get_rank(group)
        if self.rank < 0:
            raise ValueError("prewarm: this process is not in the group; call it on its ranks only")
        self._size = dist.get_world_size(group)
        self._first = dist.get_global_rank(group, 0)
        has_host = "cpu:" in dist.get_backend_config(group)
        self._device = (
            torch.device("cpu") if has_host else torch.device("cuda", torch.cuda.current_device())
        )

    def broadcast(self, data: bytes) -> bytes:
        """The bytes of the first rank."""
        size = self._torch.tensor([len(data)], dtype=self._torch.int64, device=self._device)
        self._dist.broadcast(size, self._first, group=self._group)
        buffer = self._buffer(data if self.rank == 0 else b"", int(size))
        self._dist.broadcast(buffer, self._first, group=self._group)
        return _bytes_of(buffer, int(size))

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes of every rank, in their order."""
        size = self._torch.tensor([len(data)], dtype=self._torch.int64, device=self._device)
        sizes = [self._torch.empty_like(size) for _ in range(self._size)]
        self._dist.all_gather(sizes, size, group=self._group)
        most = max(int(one) for one in sizes)
        buffers = [self._buffer(b"", most) for _ in range(self._size)]
        self._dist.all_gather(buffers, self._buffer(data, most), group=self._group)
        return [_bytes_of(buffer, int(one)) for buffer, one in zip(buffers, sizes)]

    def _buffer(self, data: bytes, size: int) -> Any:
        """A tensor of `size` bytes, and of at least one, that begins with `data`."""
        padded = bytearray(data.ljust(max(size, 1), b"\0"))
        return self._torch.frombuffer(padded, dtype=self._torch.uint8).to(self._device)


def _bytes_of(buffer: Any, size: int) -> bytes:
    """The first bytes of a tensor; PyTorch's own way to them needs NumPy."""
    host = buffer.cpu()
    return ctypes.string_at(host.data_ptr(), size)
