#!/usr/bin/env python3
"""Which kernels a change touches: the keys of every enumerated kernel, which are digests of its
source, the templates that it includes, options and arch, beside those of another commit.

scripts/replay.py [BASE] [--expect-none]    (make replay; base=COMMIT, args=--expect-none)

BASE is HEAD where there are uncommitted changes, else HEAD^. Its package is built in
build/replay/tree, which takes minutes, and its keys are kept in build/replay/COMMIT.json. Those of
this checkout come from the package kiln that Python finds, which must be built from it.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "replay"
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
KINDS = ("unchanged", "changed", "added", "removed")
SHOWN = 3  # specs of each kind


def keys(archs, families=None):
    """{arch: {spec as JSON: key}} of the package kiln that this process finds; of all families
    where none is named."""
    import kiln

    found = {}
    for arch in archs:
        specs = kiln.enumerate_specs(arch)
        if families:
            specs = [spec for spec in specs if spec["op"] in families]
        report = kiln.prewarm(specs, arch, jobs=1, check=True)
        found[arch] = {
            json.dumps(kernel["spec"], sort_keys=True): kernel["key"]
            for kernel in report["kernels"]
        }
    return found


def compare(base, now):
    """{(family, arch): {kind: [spec, ...]}}. A spec that another replaces, of the same key, is the
    same kernel and unchanged."""
    result: dict[tuple[str, str], dict[str, list[str]]] = collections.defaultdict(
        lambda: {kind: [] for kind in KINDS}
    )
    for arch in {**base, **now}:
        before, after = base.get(arch, {}), now.get(arch, {})
        gone = {key for spec, key in before.items() if spec not in after}
        come = {key for spec, key in after.items() if spec not in before}
        for spec, key in after.items():
            if spec in before:
                kind = "unchanged" if before[spec] == key else "changed"
            else:
                kind = "unchanged" if key in gone else "added"
            result[json.loads(spec)["op"], arch][kind].append(spec)
        for spec, key in before.items():
            if spec not in after and key not in come:
                result[json.loads(spec)["op"], arch]["removed"].append(spec)
    return dict(result)


def touches(comparison):
    return any(kinds[kind] for kinds in comparison.values() for kind in KINDS[1:])


def report(comparison):
    """The comparison in lines: a table, then the first specs of what is not unchanged."""
    lines = [f"{'':24}" + "".join(f"{kind:>11}" for kind in KINDS)]
    for (family, arch), kinds in sorted(comparison.items()):
        lines.append(f"{f'{family} {arch}':24}" + "".join(f"{len(kinds[k]):11}" for k in KINDS))
    for (family, arch), kinds in sorted(comparison.items()):
        for kind in KINDS[1:]:
            if kinds[kind]:
                lines.append(f"{kind}, {family} {arch}:")
                lines += [f"  {spec}" for spec in kinds[kind][:SHOWN]]
            if len(kinds[kind]) > SHOWN:
                lines.append(f"  and {len(kinds[kind]) - SHOWN} more")
    if not touches(comparison):
        lines.append("No kernel is touched.")
    return lines


def git(*arguments, folder=ROOT):
    run = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return run.stdout.strip()


def build(commit):
    """The folder with the package of a commit, built in a work tree of its own."""
    tree = FOLDER / "tree"
    if tree.exists():
        git("checkout", "--quiet", "--detach", commit, folder=tree)
    else:
        git("worktree", "prune")
        git("worktree", "add", "--quiet", "--detach", str(tree), commit)
    dependencies = ROOT / ".deps"
    if dependencies.exists() and not (tree / ".deps").exists():
        (tree / ".deps").symlink_to(dependencies)
    output, package = tree / "build" / "replay", tree / "build" / "package"
    configure = [
        "cmake", "-S", tree, "-B", output, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DKILN_BUILD_PYTHON=ON", "-DKILN_BUILD_TESTS=OFF", f"-DPython_EXECUTABLE={sys.executable}",
    ]  # fmt: skip
    for command in (
        [str(word) for word in configure],
        ["cmake", "--build", str(output), "--target", "_core"],
        ["cmake", "--install", str(output), "--component", "python", "--prefix", str(package)],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return package


def keys_of_package(package=None, archs=ARCHS, families=()):
    """In another process: the keys of the package in a folder, or of the one that Python finds."""
    environment = {**os.environ, "KILN_CACHE_DIR": "", "KILN_CACHE_PATH": ""}
    if package is not None:
        environment.pop("KILN_TEMPLATE_DIR", None)  # a commit has its own templates
        environment["PYTHONPATH"] = str(package)
    command = [sys.executable, __file__, "--dump", *archs, "--families", *families]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(run.stdout)


def keys_of_commit(commit):
    recorded = FOLDER / f"{commit}.json"
    if recorded.exists():
        return json.loads(recorded.read_text())
    print(f"building {commit[:10]} in {FOLDER.relative_to(ROOT)}/tree", flush=True)
    return record(commit, keys_of_package(build(commit)))


def record(commit, found):
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{commit}.json").write_text(json.dumps(found, indent=0, sort_keys=True))
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("base", nargs="?", default="", help="the commit to compare with")
    parser.add_argument("--expect-none", action="store_true", help="exit 1 if a kernel is touched")
    parser.add_argument("--dump", nargs="+", metavar="ARCH", help="print this package's keys alone")
    parser.add_argument("--families", nargs="*", metavar="OP", help="of --dump; default: all")
    options = parser.parse_args(arguments)
    if options.dump:
        print(json.dumps(keys(options.dump, options.families)))
        return 0
    is_clean = git("status", "--porcelain") == ""
    base = git("rev-parse", options.base or ("HEAD^" if is_clean else "HEAD"))
    now = keys_of_package()
    comparison = compare(keys_of_commit(base), now)
    here = git("rev-parse", "--short=10", "HEAD") if is_clean else "the working tree"
    print(f"kernels of {here} beside those of {base[:10]}:")
    print("\n".join(report(comparison)))
    return 1 if options.expect_none and touches(comparison) else 0


if __name__ == "__main__":
    sys.exit(main())
