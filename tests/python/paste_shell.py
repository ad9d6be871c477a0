"""Runs a block as a reader pastes it: line by line into an interactive interpreter, which the first
error ends. test_snippets.py gives this text to `python -c`, so that a block finds no file behind
its `__main__` and the current folder in `sys.path`, as at a prompt.

    python -c TEXT SECONDS    pastes its standard input, which may take so much CPU time
    python -c TEXT serve      imports torch, then pastes what each line of its standard input names
                              into a process forked for it, and answers with the exit status
"""

import atexit
import code
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback


class Shell(code.InteractiveConsole):
    """An interactive interpreter whose first error ends it. Blank lines end a statement, as they do
    where a reader pastes."""

    def showtraceback(self, *args, **kwargs):
        super().showtraceback()
        raise SystemExit(1)

    def showsyntaxerror(self, *args, **kwargs):
        super().showsyntaxerror(*args, **kwargs)
        raise SystemExit(1)


def paste(most_seconds):
    """Pastes standard input. What this process was forked from is not counted."""
    sys.argv[:] = [""]  # an interactive interpreter's
    shell = Shell({"__name__": "__main__"})
    for line in [*sys.stdin.read().splitlines(), ""]:
        more = shell.push(line)
    assert not more, "the block ends within a statement"
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    spent = sum(usage.ru_utime + usage.ru_stime for usage in both)
    assert spent <= most_seconds, f"took {spent:.0f} s of CPU time"


def paste_and_exit(request):
    """Makes this process, which was just forked, one block's, and ends it as an interpreter ends,
    but does not take its modules apart: for torch's, that costs 0.3 s of CPU time."""
    status = 1
    try:
        for number, path in enumerate(request["files"]):
            with open(path, "r+b") as file:
                os.dup2(file.fileno(), number)
        os.chdir(request["folder"])
        os.environ.update(request["variables"])
        paste(request["most_seconds"])
        status = 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            status = end.code or 0
        else:
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def wait(pid, timeout):
    """The exit status of a process, or None where it had to be killed after so many seconds."""
    deadline, killed = time.monotonic() + timeout, False
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if not killed and time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            killed = True
        time.sleep(0.01)
    return None if killed else os.waitstatus_to_exitcode(ended[1])


def serve():
    """Imports nothing of Kiln's, which reads its environment when it is imported."""
    import torch  # noqa: F401

    gc.freeze()  # a collection in a forked process would write to torch's pages, which copies them
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            paste_and_exit(request)
        print(json.dumps(wait(pid, request["timeout"])), flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else paste(float(sys.argv[1]))
