"""`kiln cache prune`: by size, by age, by NVRTC; dry; and what pins save."""

import fcntl
import hashlib
import json
import os
import time

import pytest

OK, USAGE, ENVIRONMENT = 0, 2, 4


@pytest.fixture
def filled(kiln_command, cache_dir):
    """A cache of three kernels last used 90, 60 and 0 days ago; the oldest is prewarmed."""
    text = json.dumps({"op": "gemm", "block_m": 32})
    assert kiln_command("prewarm", "--spec", "-", "--arch", "sm_80", stdin=text).code == OK
    for arch in ("sm_80", "sm_86"):
        flags = ["--block-m", 16, "--block-n", 64]
        assert kiln_command("inspect", "gemm", *flags, "--arch", arch).code == OK
    entries = kiln_command("cache", "list", "--json").json()
    assert len(entries) == 3

    def age(arch, pinned, days):
        (path,) = [e["path"] for e in entries if (e["arch"], e["pinned"]) == (arch, pinned)]
        os.utime(path, (time.time() - days * 86400,) * 2)

    age("sm_80", True, 90)
    age("sm_80", False, 60)
    return entries


def test_by_age(kiln_command, filled):
    dry = kiln_command("cache", "prune", "--older-than", 30, "--dry-run")
    assert "1 kernels would be removed" in dry.stdout
    assert "gemm bfloat16 nt, tile 16x64x64x6" in dry.stdout
    assert "1 pinned kernels kept, as they were prewarmed: `kiln cache clear`" in dry.stdout
    assert len(kiln_command("cache", "list", "--json").json()) == 3
    report = kiln_command("cache", "prune", "--older-than", 30, "--json").json()
    assert (report["removed"], report["kept_pinned"], report["dry_run"]) == (1, 1, False)
    assert report["bytes"] == report["entries"][0]["bytes"] > 0
    left = kiln_command("cache", "list", "--json").json()
    assert sorted(entry["arch"] for entry in left) == ["sm_80", "sm_86"]
    assert "0 kernels removed" in kiln_command("cache", "prune", "--older-than", 30).stdout


def test_by_size(kiln_command, filled):
    report = kiln_command("cache", "prune", "--max-size", 0, "--dry-run", "--json").json()
    assert (report["removed"], report["kept_pinned"], report["dry_run"]) == (2, 1, True)
    run = kiln_command("cache", "prune", "--max-size", 0)
    assert run.stdout.startswith("2 kernels removed")
    assert "1 pinned kernels kept" in run.stdout


def test_by_nvrtc_dry(kiln_command, filled):
    arguments = ["cache", "prune", "--older-than-nvrtc", "99", "--dry-run", "--json"]
    report = kiln_command(*arguments).json()
    assert (report["removed"], report["kept_pinned"]) == (3, 0)
    assert len(kiln_command("cache", "list", "--json").json()) == 3


@pytest.mark.parametrize("days", ["-1", "soon", "nan", "1e9"])
def test_bad_days(kiln_command, days):
    run = kiln_command("cache", "prune", f"--older-than={days}")
    assert run.code == USAGE
    assert "must be days from 0 to 36500" in run.stderr


def test_info_tells_owner_and_mode(kiln_command, cache_dir):
    cache_dir.mkdir(mode=0o755)
    run = kiln_command("cache", "info")
    assert "0755" in run.stdout and "owner" in run.stdout
    cache_dir.chmod(0o777)
    assert "chmod -R o-w" in kiln_command("cache", "info").stdout


def test_clearing_names_what_stays(kiln_command, filled, cache_dir):
    key = filled[0]["key"]
    with open(cache_dir / "locks" / f"{key}.publish", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = kiln_command("cache", "clear")
        assert run.code == ENVIRONMENT
        assert run.stdout.startswith("2 kernels removed")
        assert "not every entry was removed, as other processes were using some (1)" in run.stderr
    assert kiln_command("cache", "clear", "--json").json()["removed"] == 1


def test_a_time_in_the_future_is_unknown(kiln_command, filled):
    os.utime(filled[0]["path"], (2**34, 2**34))
    assert "unknown" in kiln_command("cache", "list").stdout


def seal(path, **changes):
    """Rewrites an entry's JSON file as somebody who knows the format would."""
    side = json.loads(path.read_text())
    side.pop("check")
    side["description"] = changes
    text = json.dumps(side, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    side["check"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(side))


def test_sealed_entries_of_odd_types_are_listed_and_removed(kiln_command, filled, cache_dir):
    odd = [{"what": 3, "arch": [], "nvrtc_version": {}}, {}, {"what": None, "registers": "x"}]
    for path, changes in zip(sorted(cache_dir.glob("*/*.json")), odd):
        seal(path, **changes)
    entries = kiln_command("cache", "list", "--json").json()
    assert [entry["what"] for entry in entries] == ["", "", ""]
    assert kiln_command("cache", "list").code == OK
    assert kiln_command("cache", "verify", "--json").json() == {"checked": 3, "faults": []}
    flags = ["--block-m", 16, "--block-n", 64, "--arch", "sm_86"]
    report = kiln_command("inspect", "gemm", *flags, "--json").json()
    assert report[0]["registers"] > 0  # compiled again
    assert kiln_command("cache", "prune", "--older-than-nvrtc", "99").code == OK
    assert kiln_command("cache", "clear", "--json").json()["failed"] == 0
    assert kiln_command("cache", "list", "--json").json() == []


def test_json_that_nests_without_end(kiln_command, filled, cache_dir):
    for path in cache_dir.glob("*/*.json"):
        path.write_text("[" * 200_000)
    assert len(kiln_command("cache", "list", "--json").json()) == 3
    assert len(kiln_command("cache", "verify", "--json").json()["faults"]) == 3
    assert (
        kiln_command("prewarm", "--spec", "-", "--arch", "sm_80", stdin="[" * 200_000).code == USAGE
    )
    spec = "[" * 80 + "]" * 80
    run = kiln_command("prewarm", "--spec", "-", "--arch", "sm_80", stdin=spec)
    assert run.code == USAGE and "nests arrays and objects deeper than 64 levels" in run.stderr
    assert kiln_command("cache", "clear", "--json").json()["removed"] == 3
