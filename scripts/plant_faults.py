#!/usr/bin/env python3
"""Plants the faults of tests/support/template_faults.py, one at a time, and runs the nearest test.

    python scripts/plant_faults.py [--only SUBSTRING] [--jobs 2] [--list]

A fault is caught when its test fails with it and passes without. A template that no longer compiles
proves nothing. Exit code 1 when a fault was not caught.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from template_faults import FAULTS  # type: ignore[import-not-found]  # noqa: E402

TEMPLATES = ROOT / "templates"
LIMIT_S = 900


def planted(fault, folder):
    """A copy of templates/ in `folder` that has the fault."""
    copy = pathlib.Path(shutil.copytree(TEMPLATES, folder / "templates"))
    path = copy / fault["file"]
    text = path.read_text()
    if text.count(fault["old"]) != 1:
        raise SystemExit(f"{fault['name']}: {fault['file']} must have once: {fault['old']}")
    path.write_text(text.replace(fault["old"], fault["new"]))
    return copy


def run(test, templates, cache):
    """Whether the test passed with these templates, and what it printed."""
    words = test.split()
    if words[0] == "ctest":
        command = ["ctest", "--preset", "dev", "-R", f"^{words[1]}$"]
    else:
        command = [sys.executable, "-m", "pytest", *words, "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "KILN_TEMPLATE_DIR": str(templates), "KILN_TEST_CACHE": str(cache)}
    environment.pop("KILN_TEST_SEED", None)  # with which tests of kernels take turns

    def ran(**more):
        return subprocess.run(
            command, cwd=ROOT, env=environment | more, text=True, timeout=LIMIT_S, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    done = ran()
    # Pytest returns 5 if it ran no test: the fault's test waits for its turn.
    if words[0] != "ctest" and done.returncode == 5:
        done = ran(KILN_TEST_FULL="1")
    # Of pytest: 1 when a test failed; all others mean that none was run, as it was misnamed.
    if words[0] != "ctest" and done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}")
    return done.returncode == 0, done.stdout


def verdict(fault):
    """ "caught", or why not; and what the test printed."""
    with tempfile.TemporaryDirectory(prefix="kiln-template-fault-") as name:
        folder = pathlib.Path(name)
        cache = folder / "cache"
        cache.mkdir(mode=0o700)
        try:
            passed, output = run(fault["caught_by"], planted(fault, folder), cache)
        except subprocess.TimeoutExpired:
            return f"no end in {LIMIT_S} s", ""
    if passed:
        return "missed", output
    return ("does not compile" if "CompileError" in output else "caught"), output


def sound(test):
    """What is wrong with a test that fails without any fault, or None."""
    with tempfile.TemporaryDirectory(prefix="kiln-template-fault-") as folder:
        passed, output = run(test, TEMPLATES, folder)
    return None if passed else f"{test} fails without any fault:\n{output}"


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="faults whose names contain this")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--list", action="store_true", help="print the faults, run nothing")
    return parser.parse_args()


def main():
    arguments = parsed()
    faults = [fault for fault in FAULTS if arguments.only in fault["name"]]
    if not faults:
        raise SystemExit(f"no fault is called '{arguments.only}'")
    if arguments.list:
        for fault in faults:
            print(f"{fault['name']:45} {fault['caught_by']}")
        return 0
    tests = sorted({fault["caught_by"] for fault in faults})
    caught = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        broken = [text for text in pool.map(sound, tests) if text]
        if broken:
            raise SystemExit("\n".join(broken))
        print(f"{len(tests)} tests pass without any fault", flush=True)
        for fault, (found, output) in zip(faults, pool.map(verdict, faults)):
            caught += found == "caught"
            print(f"{found:16} {fault['name']:45} {fault['caught_by']}", flush=True)
            if found == "does not compile":
                print(output)
    print(f"{caught} of {len(faults)} template faults were caught by the nearest tests")
    return 0 if caught == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
