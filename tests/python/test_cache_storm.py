"""Many processes on one cold cache, and killed ones: bench/cache_storm.py, in a small form unless
KILN_TEST_FULL is set."""

import json
import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parents[2] / "bench/cache_storm.py"
SMALL = {"processes": 4, "keys": 2, "repeats": 1, "rounds": 3, "killed": 3, "killed-keys": 1}
FULL = {"processes": 16, "keys": 8, "repeats": 1, "rounds": 200, "killed": 4, "killed-keys": 2}


def test_storm(environment):
    is_full = os.environ.get("KILN_TEST_FULL") == "1"
    sizes = FULL if is_full else SMALL
    flags = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *flags],
        env=environment,
        capture_output=True,
        text=True,
        timeout=3600 if is_full else 300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert report["faults"] == []
    assert report["one"]["compiles"] == sizes["keys"]
    # A lock is waited for a few seconds, and compiled without after that.
    assert report["many"]["compiles"] == sizes["keys"]
    assert report["cpu_ratio"] < 2
    assert report["killed"] > 0
