"""Files that a user names: their errors name what the user gave, and never a temporary file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def errors_name(path: str) -> Iterator[None]:
    """Makes errors of the system name this path, whatever file they are about."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def check_target(flag: str, path: str) -> None:
    """Checks that a file can be written, before the work whose result it takes and not after it."""
    if os.path.isdir(path):
        raise ValueError(f"{flag} {path} is a folder; give the path of a file")
    if not path:
        raise ValueError(f"{flag} is an empty path; give the path of a file")
    import tempfile  # here: `import kiln` would take longer

    with errors_name(path), tempfile.TemporaryFile(dir=os.path.dirname(path) or "."):
        pass
