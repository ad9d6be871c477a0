"""The command line. Exit codes: 0 ok, 1 a check failed, 2 usage, 3 a compile failed, 4 the
environment (no NVRTC, no GPU where one is required)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import CompileError, CudaError, Error, __version__
from . import cache, doctor, emulate, inspect, prewarm
from .output import COMPILE_FAILED, ENVIRONMENT, USAGE, nvrtc_problem


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each command module adds its own."""
    parser = argparse.ArgumentParser(prog="kiln", description="Kernels compiled at run time.")
    parser.add_argument("--version", action="version", version=f"kiln {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (doctor, prewarm, cache, inspect, emulate):
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    options = make_parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, TypeError, OSError) as error:
        return _fail(error, USAGE)
    except CompileError as error:
        return _fail(error, ENVIRONMENT if nvrtc_problem() else COMPILE_FAILED)
    except CudaError as error:
        return _fail(error, ENVIRONMENT)
    except Error as error:
        return _fail(error, 1)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130


def _fail(error: Exception, code: int) -> int:
    print(f"kiln: {error}", file=sys.stderr)
    return code
