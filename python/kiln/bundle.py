"""Bundles: kernels of the cache in one file, and back. A bundle is a tar of a cache folder's files
and a list of them, in the same bytes wherever it is made: sorted, and without times and owners."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import _core, control
from .files import errors_name
from .json_file import parse_json

_LIST = ".kiln-bundle.json"
_MARK = ".kiln-cache"  # as cache/own_folder.h: an unpacked bundle is a cache folder of Kiln's
_FORMAT = 1
_SUFFIXES = (".cubin", ".ptx.z", ".json")
_NAME = re.compile(r"([0-9a-f]{2})/([0-9a-f]{62})(\.cubin|\.ptx\.z|\.json)")
_MOST_BYTES = 2**26  # of a file, as in the cache


class Incomplete(ValueError):
    """The cache lacks what is to be exported."""


class Kernel(NamedTuple):
    """One entry of a bundle: the bytes of its three files."""

    key: str
    cubin: bytes
    ptx: bytes
    json: bytes

    def files(self) -> dict[str, bytes]:
        """The files by their names in a cache folder."""
        stem = f"{self.key[:2]}/{self.key[2:]}"
        return dict(zip((stem + suffix for suffix in _SUFFIXES), self[1:]))


def export_cache(
    path: str | os.PathLike[str],
    problems: control.Specs | None = None,
    arch: str | Iterable[str] | None = None,
) -> dict[str, Any]:
    """Writes kernels of the cache to one file, a bundle, which import_cache takes elsewhere.

    path      of the file, which is replaced
    problems  the specs of the kernels, as prewarm takes them; default: all that any layer has
    arch      "sm_90a", or several: of these alone; with problems, as in prewarm

    Returns a report with path, sha256 (of the file), bytes, kernels (their number) and identity,
    which tells the archs, the versions of NVRTC, and a SHA-256 of the keys. The same kernels of the
    same NVRTC give the same bytes on every machine. A bundle is also a tar of a cache folder: as
    the layer of an image, it can be named in KILN_CACHE_PATH. Needs neither NVRTC nor a GPU. Raises
    ValueError if kernels of `problems` are missing, or if there is none at all.

        >>> import kiln
        >>> spec = {"op": "gemm", "dtype": "float16", "block_m": 32, "stages": 4}
        >>> kernels = kiln.prewarm(spec, "sm_80")["total"]
        >>> report = kiln.export_cache("kernels.tar", spec, "sm_80")
        >>> report["kernels"] == kernels, len(report["sha256"])
        (True, 64)
    """
    kernels = read_kernels(_wanted_keys(problems, arch))
    data = pack(kernels)
    _write(os.fspath(path), data)
    return {
        "path": os.fspath(path),
        "sha256": _sha256(data),
        "bytes": len(data),
        "kernels": len(kernels),
        "identity": _identity(kernels),
    }


def import_cache(path: str | os.PathLike[str], sha256: str | None = None) -> dict[str, Any]:
    """Publishes the kernels of a bundle in the writable cache folder.

    path    of a file that export_cache wrote
    sha256  the digest of the whole file, 64 hex digits, if it is known

    The file is checked as a whole before the first kernel is written: the digest, the list of its
    files, and each entry's own digests. Other processes may use the folder meanwhile. A kernel that
    a layer has already stays as it is. Imported kernels are pinned, as prewarmed ones are. Take
    bundles only from where you would take a program: without `sha256`, the digests find damage and
    not malice.

    Returns a report with path, sha256, kernels, imported, present and identity. Raises ValueError
    for a file that is not such a bundle, and kiln.Error if the folder cannot be written.

        >>> import kiln
        >>> spec = {"op": "gemm", "dtype": "float16", "block_m": 32, "stages": 4}
        >>> kernels = kiln.prewarm(spec, "sm_80")["total"]
        >>> report = kiln.export_cache("kernels.tar", spec, "sm_80")
        >>> kiln.import_cache("kernels.tar", report["sha256"])["present"] == kernels
        True
    """
    name = os.fspath(path)
    expected = None if sha256 is None else check_digest(sha256)
    with open(name, "rb") as file:
        data = file.read()  # once: what was checked is what is imported
    found = _sha256(data)
    if expected not in (None, found):
        raise ValueError(
            f"{name} has the SHA-256 {found}, expected {expected}; nothing was imported: take the "
            "file from its source again"
        )
    kernels = unpack(data, name)
    return {"path": name, "sha256": found, **store(kernels), "identity": _identity(kernels)}


def check_digest(sha256: str) -> str:
    """A SHA-256 in the form that hashlib gives it. Raises ValueError for what is none."""
    digest = str(sha256).strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"a SHA-256 must be 64 hex digits, got {sha256!r}")
    return digest


def read_kernels(keys: Iterable[str]) -> list[Kernel]:
    """The kernels of these keys, in their order. Raises ValueError for one that no layer has."""
    kernels = []
    for key in sorted(set(keys)):
        files = _core.bundle_entry(key)
        if files is None:
            raise Incomplete(f"the cache has no sound entry {key}; run kiln cache verify")
        kernels.append(Kernel(key, *files))
    return kernels


def pack(kernels: Iterable[Kernel]) -> bytes:
    """The bundle of some kernels, sorted by their keys."""
    files = {_MARK: b""}
    for kernel in kernels:
        files.update(kernel.files())
    listed = {
        name: {"bytes": len(content), "sha256": _sha256(content)}
        for name, content in sorted(files.items())
    }
    text = json.dumps({"format": _FORMAT, "files": listed}, indent=1, sort_keys=True)
    import tarfile  # here, as below: `import kiln` would take a quarter longer

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in ((_LIST, text.encode()), *sorted(files.items())):
            member = tarfile.TarInfo(name)  # of root, of the year 1970
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def unpack(data: bytes, name: str) -> list[Kernel]:
    """The kernels of a bundle, each with its own digests checked. Raises ValueError, which calls
    the bundle by `name`."""
    files = _read_files(data, name)
    listed = _read_list(files.pop(_LIST, b""), name)
    _compare(files, listed, name)
    keys = sorted({match[1] + match[2] for match in map(_NAME.fullmatch, files) if match})
    kernels = [Kernel(key, *(files[_file(key, suffix)] for suffix in _SUFFIXES)) for key in keys]
    for kernel in kernels:
        fault = _core.bundle_entry_fault(*kernel)
        if fault:
            raise ValueError(f"{name} is not imported: its entry {kernel.key} {fault}")
    return kernels


def store(kernels: Iterable[Kernel], replace: bool = False) -> dict[str, int]:
    """Publishes kernels, and counts them. Raises kiln.Error if one cannot be written."""
    counts = {"kernels": 0, "imported": 0, "present": 0}
    for kernel in kernels:
        outcome = _core.store_bundle_entry(*kernel, replace)
        if outcome not in counts:
            raise _core.Error(
                f"after {counts['imported']} kernels, the entry {kernel.key} could not be written "
                "to the cache; set KILN_CACHE_DIR to a folder that can be written"
            )
        counts["kernels"] += 1
        counts[outcome] += 1
    return counts


def _file(key: str, suffix: str) -> str:
    return f"{key[:2]}/{key[2:]}{suffix}"


def _wanted_keys(problems: control.Specs | None, arch: str | Iterable[str] | None) -> Iterable[str]:
    if problems is not None:
        report = control.prewarm(problems, arch, check=True)
        if not report["total"]:
            raise Incomplete("the specs name no kernel, so there is nothing to export; add some")
        if report["missing"]:
            raise Incomplete(
                f"{report['missing']} of {report['total']} kernels are not in the cache; run kiln "
                "prewarm with the same specs and archs first"
            )
        return [kernel["key"] for kernel in report["kernels"]]
    bases = None
    if arch is not None:
        control.prewarm([], arch, check=True)  # refuses an unknown arch
        bases = {_base(one) for one in control.arch_names(arch)}
    entries = json.loads(_core.cache_list())
    keys = [entry["key"] for entry in entries if bases is None or _base(entry["arch"]) in bases]
    if not keys:
        raise Incomplete(
            "the cache has no kernels to export"
            + ("" if bases is None else f" for {', '.join(sorted(bases))}")
            + "; fill it with kiln prewarm"
        )
    return keys


def _base(arch: str) -> str:
    """sm_90a as sm_90: a GPU of one runs the kernels of both."""
    return arch.rstrip("af")


def _identity(kernels: Iterable[Kernel]) -> dict[str, Any]:
    """Tells tools of a fleet which bundle this is, by no path, time or user."""
    facts = [json.loads(kernel.json)["description"] for kernel in kernels]
    keys = "".join(kernel.key + "\n" for kernel in kernels)
    return {
        "archs": sorted({str(fact.get("arch")) for fact in facts}),
        "nvrtc": sorted({str(fact.get("nvrtc_version")) for fact in facts}),
        "keys": _sha256(keys.encode()),
    }


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _write(path: str, data: bytes) -> None:
    """Replaces a file, which has its old bytes until it has all of the new ones."""
    if os.path.isdir(path):
        raise ValueError(f"export_cache: {path} is a folder; give the path of a file")
    import tempfile

    with errors_name(path):
        folder = os.path.dirname(path) or "."
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".kiln-export-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def _read_files(data: bytes, name: str) -> dict[str, bytes]:
    """The members of a tar that are plain files of sane sizes, each once."""
    import tarfile

    files: dict[str, bytes] = {}
    end = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                    raise ValueError(
                        f"{name} is not imported: {member.name!r} in it is not a plain file"
                    )
                if member.name in files:
                    raise ValueError(
                        f"{name} is not imported: it holds {member.name!r} more than once"
                    )
                if member.size > _MOST_BYTES:
                    raise ValueError(
                        f"{name} is not imported: {member.name!r} in it is larger than 64 MiB"
                    )
                files[member.name] = data[member.offset_data :][: member.size]
                end = member.offset_data + member.size
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(
            f"{name} is no bundle of kiln cache export, or is cut off: {error}"
        ) from None
    if data[end:].strip(b"\0"):  # where tarfile does not look
        raise ValueError(f"{name} is not imported: there is data behind its last file")
    return files


def _read_list(text: bytes, name: str) -> Mapping[str, Any]:
    """The list that a bundle has of its files."""
    if not text:
        raise ValueError(f"{name} is no bundle of kiln cache export: it lacks {_LIST}")
    try:
        value = parse_json(text.decode(errors="replace"), _LIST)
    except ValueError:
        value = None
    if isinstance(value, dict) and value.get("format") != _FORMAT:
        raise ValueError(f"{name} is a bundle of another version of Kiln; export it with this one")
    listed = value.get("files") if isinstance(value, dict) else None
    if not isinstance(listed, dict):
        raise ValueError(f"{name} is not imported: its {_LIST} has no list of files")
    return listed


def _compare(files: Mapping[str, bytes], listed: Mapping[str, Any], name: str) -> None:
    """Refuses a bundle that holds anything but what its list says, or anything but entries."""
    for file, content in files.items():
        if file not in listed or not (file == _MARK or _NAME.fullmatch(file)):
            raise ValueError(f"{name} is not imported: {file!r} in it is no file of a cache")
        fact = {"bytes": len(content), "sha256": _sha256(content)}
        if listed[file] != fact:
            raise ValueError(f"{name} is not imported: {file!r} in it is cut off or altered")
    keys = {match[1] + match[2] for match in map(_NAME.fullmatch, listed) if match}
    whole = {_file(key, suffix) for key in keys for suffix in _SUFFIXES} | {*listed}
    for file in sorted(whole):
        if file not in files:
            raise ValueError(f"{name} is not imported: it lacks {file!r}, and may be cut off")
