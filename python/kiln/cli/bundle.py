"""`kiln cache export|import`: kernels of the cache in one file, and back."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import Error, bundle
from .output import CHECK_FAILED, OK, Unavailable, byte_text, print_json
from .prewarm import add_problems, problems_of


def add_export_flags(parser: argparse.ArgumentParser) -> None:
    """The file, and which kernels."""
    parser.add_argument("file", metavar="FILE", help="the bundle that is written")
    add_problems(parser, required=False)


def add_import_flags(parser: argparse.ArgumentParser) -> None:
    """The file, and its digest."""
    parser.add_argument("file", metavar="FILE", help="a bundle of kiln cache export")
    parser.add_argument(
        "--sha256", metavar="HEX", help="of the whole file; nothing is written if it differs"
    )


def export_entries(options: argparse.Namespace) -> int:
    """Writes a bundle."""
    try:
        with problems_of(options) as specs:
            report = bundle.export_cache(options.file, specs, options.arch)
    except bundle.Incomplete as error:
        return _refused(error)
    if options.json:
        print_json(report)
        return OK
    print(f"{report['sha256']}  {report['path']}")
    print(
        f"{report['kernels']} kernels, {byte_text(report['bytes'])}, "
        f"{', '.join(report['identity']['archs'])}, "
        f"NVRTC {', '.join(report['identity']['nvrtc'])}"
    )
    return OK


def import_entries(options: argparse.Namespace) -> int:
    """Reads a bundle into the writable folder."""
    if options.sha256 is not None:
        bundle.check_digest(options.sha256)
    try:
        report = bundle.import_cache(options.file, options.sha256)
    except ValueError as error:  # what is wrong with the file
        return _refused(error)
    except Error as error:
        raise Unavailable(str(error)) from None
    if options.json:
        print_json(report)
    else:
        print(
            f"{report['kernels']} kernels: {report['imported']} imported, "
            f"{report['present']} present already"
        )
    return OK


def _refused(error: Exception) -> int:
    print(f"kiln: {error}", file=sys.stderr)
    return CHECK_FAILED


ACTIONS: dict[str, Any] = {
    "export": (
        export_entries,
        "write kernels to one file, for another machine",
        """Writes kernels of all folders to one file, a bundle, and prints its SHA-256: those of
        --spec or --model, of which none may be missing, or every kernel. The same kernels give the
        same bytes. Needs neither NVRTC nor a GPU, if --arch is given.""",
        [
            ("kiln cache export kernels.tar", "every kernel"),
            ("kiln cache export kernels.tar --spec kernels.json --arch sm_90a", "those of specs"),
        ],
    ),
    "import": (
        import_entries,
        "read the kernels of such a file; exit 1 when it is faulty",
        """Publishes the kernels of a bundle in the writable folder, beside running processes if
        there are any. The file is checked as a whole before anything is written. Kernels that are
        cached already stay as they are.""",
        [
            ("kiln cache import kernels.tar", ""),
            ("kiln cache import kernels.tar --sha256 3f2a…", "the digest that export printed"),
        ],
    ),
}
