"""The command line. Exit codes: 0 ok, 1 a check failed, 2 usage (and a path that names no file),
3 a compile failed, 4 the environment (no NVRTC, no GPU where one is required, a file or folder that
is there and cannot be read or written)."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence

from .. import CompileError, CudaError, Error, __version__
from . import bench, cache, doctor, emulate, inspect, prewarm, tune
from .output import COMPILE_FAILED, ENVIRONMENT, OK, USAGE, Unavailable, nvrtc_problem

# Errors of a path that names no such file or folder: the command line is responsible. For all
# others the machine is.
_PATH_ERRORS = (
    errno.ENOENT,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


_DESCRIPTION = """\
Kiln compiles GPU kernels at run time and keeps them in a cache. These commands look at the
machine, fill and clean the cache, show what a kernel is made of, and measure it. Each command has
--json, which prints JSON and nothing else to stdout, and a --help with examples."""
_EPILOG = """\
examples:
  kiln doctor                                          what is here, and what to do about problems
  kiln prewarm --model llama-3.1-8b --arch sm_90a      compile ahead, no GPU needed
  kiln inspect gemm --arch sm_90a                      registers, shared memory, source, PTX, SASS
  kiln bench gemm --m 4096 --n 4096 --k 4096           how fast is it here?

exit codes: 0 ok, 1 a check failed, 2 usage, 3 a compile failed, 4 the environment (no NVRTC, no
GPU where one is needed, a file or folder that is there and cannot be read or written). All flags:
docs/cli.md"""


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each command module adds its own."""
    parser = argparse.ArgumentParser(
        prog="kiln",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kiln {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for module in (doctor, prewarm, inspect, bench, tune, cache, emulate):
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    _escape_what_stdout_lacks()
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return OK
    code = OK
    try:
        code = options.run(options)
        sys.stdout.flush()  # a failure here still gets an exit code
        return code
    except BrokenPipeError:  # the reader of the pipe, such as head, has ended
        _silence_stdout()
        return code
    except OSError as error:
        _silence_stdout()
        return _fail(_told(error), USAGE if error.errno in _PATH_ERRORS else ENVIRONMENT)
    except (ValueError, TypeError) as error:
        return _fail(error, USAGE)
    except CompileError as error:
        return _fail(error, ENVIRONMENT if nvrtc_problem() else COMPILE_FAILED)
    except (CudaError, Unavailable) as error:
        return _fail(error, ENVIRONMENT)
    except MemoryError:
        return _fail("there is not enough memory here for this command", ENVIRONMENT)
    except Error as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return 130


def _escape_what_stdout_lacks() -> None:
    # A name that stdout's encoding lacks must not fail what is already done. stderr does the same.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _silence_stdout() -> None:
    # Python writes what is still buffered when it exits, which would fail again. A stdout that is
    # no file cannot fail in this way.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: OSError) -> str:
    """An error of the system as a sentence, without its number."""
    if not isinstance(error.filename, str) or not error.strerror:
        return str(error)
    return (
        f"{error.filename!r} cannot be used: {error.strerror}; check the path and its permissions"
    )


def _fail(error: Exception | str, code: int) -> int:
    print(f"kiln: {error}", file=sys.stderr)
    return code
