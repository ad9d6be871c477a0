"""Bundles: kiln cache export and import, the same bytes everywhere, and what is refused."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile

import kiln
import pytest
from conftest import ONE_KERNEL
from kiln import bundle
from message_page import check

OK, CHECK_FAILED, USAGE, ENVIRONMENT = 0, 1, 2, 4
ARCH = "sm_90a"

CALL = """
import json, kiln, numpy
from kiln import jit
a = numpy.ones((16, 64), numpy.float16)
with kiln.device("emulator:sm_90a"):
    spec = kiln.explain("gemm", a, a.T)["spec"]
    value = float(jit.gemm(a, a.T)[3, 5])
print(json.dumps({"value": value, "spec": spec, **kiln.stats()}))
"""


def run_call(environment, **variables):
    run = subprocess.run(
        [sys.executable, "-c", CALL],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A cache of the kernel of a call, compiled in the process that exports it, and its bundle."""
    folder = tmp_path_factory.mktemp("made")
    first = run_call({**os.environ, "KILN_CACHE_DIR": str(folder / "emulated")})
    assert first["compiles"] == 1
    environment = {**os.environ, "KILN_CACHE_DIR": str(folder / "cache")}
    code = (
        "import json, kiln, sys; from kiln.cli import main; spec, path = sys.argv[1:]\n"
        "assert kiln.prewarm(json.loads(spec), 'sm_90a')['compiled'] == 1\n"
        "raise SystemExit(main(['cache', 'export', path, '--json']))"
    )
    command = [sys.executable, "-c", code, json.dumps(first["spec"]), str(folder / "a.tar")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == OK, run.stderr
    return {"folder": folder, "environment": environment, **first, "report": json.loads(run.stdout)}


@pytest.fixture
def data(made):
    return (made["folder"] / "a.tar").read_bytes()


def test_an_imported_kernel_is_used_without_compiling(kiln_command, made, environment):
    report = made["report"]
    imported = kiln_command(
        "cache", "import", report["path"], "--sha256", report["sha256"], "--json"
    ).json()
    assert (imported["kernels"], imported["imported"], imported["present"]) == (1, 1, 0)
    assert imported["identity"] == report["identity"]
    again = run_call(environment, KILN_JIT="off")
    assert (again["value"], again["compiles"], again["nvrtc_loaded"]) == (64.0, 0, False)
    assert kiln_command("cache", "verify", "--json").json() == {"checked": 1, "faults": []}
    assert kiln_command("cache", "list", "--json").json()[0]["pinned"]
    second = kiln_command("cache", "import", report["path"])
    assert second.stdout == "1 kernels: 0 imported, 1 present already\n"


def test_an_unpacked_bundle_is_a_read_only_layer(made, environment, tmp_path):
    with tarfile.open(made["report"]["path"]) as tar:
        tar.extractall(tmp_path / "layer")
    layer = {"KILN_CACHE_DIR": "", "KILN_CACHE_PATH": str(tmp_path / "layer"), "KILN_JIT": "off"}
    again = run_call(environment, **layer)
    assert (again["value"], again["compiles"], again["disk_hits"]) == (64.0, 0, [1])


def test_equal_kernels_give_equal_bytes(kiln_command, made, cache_dir, tmp_path):
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(made["spec"]))
    # Compiled again, in another folder, by a prewarm, at another time.
    assert kiln_command("prewarm", "--spec", spec, "--arch", ARCH).code == OK
    run = kiln_command("cache", "export", tmp_path / "b.tar", "--spec", spec, "--arch", ARCH)
    assert run.stdout.startswith(made["report"]["sha256"] + "  ")
    assert (tmp_path / "b.tar").read_bytes() == (made["folder"] / "a.tar").read_bytes()
    with tarfile.open(tmp_path / "b.tar") as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {
        (0, 0, 0, "", "", 0o644)
    }


def test_the_identity_names_no_machine(made):
    identity = made["report"]["identity"]
    assert set(identity) == {"archs", "nvrtc", "keys"}
    assert identity["archs"] == ["sm_90a"]
    assert len(identity["keys"]) == 64


def test_what_is_missing_is_not_exported(kiln_command, spec_file, tmp_path):
    target = tmp_path / "none.tar"
    run = kiln_command("cache", "export", target, "--spec", spec_file, "--arch", "sm_80")
    assert (run.code, target.exists()) == (CHECK_FAILED, False)
    check(ValueError(run.stderr), ValueError, "kernels are not in the cache; run kiln prewarm with")
    run = kiln_command("cache", "export", target, "--arch", "sm_80")
    assert run.code == CHECK_FAILED
    check(ValueError(run.stderr), ValueError, "the cache has no kernels to export for sm_80; fill")


def test_no_spec_is_no_bundle(kiln_command, tmp_path):
    target = tmp_path / "kept.tar"
    target.write_bytes(b"kept")
    run = kiln_command("cache", "export", target, "--spec", "-", "--arch", ARCH, stdin="[]")
    assert (run.code, run.stdout, target.read_bytes()) == (CHECK_FAILED, "", b"kept")
    check(ValueError(run.stderr), ValueError, "the specs name no kernel, so there is nothing to ex")


def test_an_arch_selects(kiln_command, made, tmp_path):
    variables = {"KILN_CACHE_DIR": made["environment"]["KILN_CACHE_DIR"]}
    run = kiln_command("cache", "export", tmp_path / "a", "--arch", ARCH, "--json", **variables)
    assert run.json()["kernels"] == 1
    run = kiln_command("cache", "export", tmp_path / "b", "--arch", "sm_86", **variables)
    assert run.code == CHECK_FAILED
    run = kiln_command("cache", "export", tmp_path, "--arch", ARCH, **variables)
    assert run.code == USAGE
    check(ValueError(run.stderr), ValueError, "is a folder; give the path of a file")
    absent = tmp_path / "absent" / "c"
    run = kiln_command("cache", "export", absent, "--arch", ARCH, **variables)
    assert run.code == USAGE
    assert run.stderr.startswith(f"kiln: '{absent}' cannot be used: No such file or directory;")


def test_an_unknown_arch_is_usage(kiln_command, tmp_path):
    run = kiln_command("cache", "export", tmp_path / "a", "--arch", "sm_1")
    assert run.code == USAGE
    check(ValueError(run.stderr), ValueError, "unknown arch 'sm_1'; expected one of sm_80")


@pytest.mark.parametrize("digest", ["zz", "", "0" * 63, "0" * 65, "g" * 64])
def test_a_digest_has_64_digits(kiln_command, made, cache_dir, digest):
    run = kiln_command("cache", "import", made["report"]["path"], "--sha256", digest)
    assert (run.code, cache_dir.exists()) == (USAGE, False)
    check(ValueError(run.stderr), ValueError, f"a SHA-256 must be 64 hex digits, got '{digest}'")


def test_a_folder_that_cannot_be_written(kiln_command, made):
    run = kiln_command("cache", "import", made["report"]["path"], KILN_CACHE_DIR="")
    assert run.code == ENVIRONMENT
    check(ValueError(run.stderr), ValueError, "could not be written to the cache; set KILN_CACHE_D")


def test_the_digest_is_checked_before_anything_is_written(kiln_command, made, cache_dir):
    run = kiln_command("cache", "import", made["report"]["path"], "--sha256", "0" * 64)
    assert (run.code, cache_dir.exists()) == (CHECK_FAILED, False)
    check(ValueError(run.stderr), ValueError, "nothing was imported: take the file from its sourc")


def members_of(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(member, tar.extractfile(member).read()) for member in tar]


def tar_of(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def member(name, content=b"", **properties):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in properties.items():
        setattr(info, key, value)
    return info, content


def listing(members):
    files = {
        info.name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for info, content in members
    }
    return member(".kiln-bundle.json", json.dumps({"format": 1, "files": files}).encode())


def relisted(members):
    """A bundle whose list is right about other files."""
    files = [one for one in members if one[0].name != ".kiln-bundle.json"]
    return tar_of([listing(files), *files])


def altered(members, suffix):
    changed = []
    for info, content in members:
        if info.name.endswith(suffix) and "/" in info.name:
            content = content[:50] + bytes([content[50] ^ 1]) + content[51:]
        changed.append((info, content))
    return changed


def without_format(members):
    listed = json.loads(members[0][1])
    assert listed.pop("format") == 1
    return member(".kiln-bundle.json", json.dumps({**listed, "format": None}).encode())


def swapped(members):
    """Both files of a sound entry, under another key."""
    for info, _ in members:
        if "/" in info.name:
            info.name = "00/" + "0" * 62 + info.name[65:]
    return members


REFUSED = {
    "no tar": (lambda m: b"nothing", "is no bundle of kiln cache export, or is cut off"),
    "a tar of others": (lambda m: tar_of([member("x", b"1")]), "it lacks .kiln-bundle.json"),
    "a path upwards": (lambda m: tar_of([*m, member("../evil", b"1")]), "is no file of a cache"),
    "an absolute path": (lambda m: relisted([*m, member("/etc/x", b"1")]), "is no file of a cache"),
    "a listed stranger": (lambda m: relisted([*m, member("x.so", b"1")]), "is no file of a cache"),
    "a link": (
        lambda m: tar_of([*m, member("a", type=tarfile.SYMTYPE, linkname="/etc")]),
        "in it is not a plain file",
    ),
    "a hard link": (
        lambda m: tar_of([*m, member("a", type=tarfile.LNKTYPE, linkname=m[2][0].name)]),
        "in it is not a plain file",
    ),
    "a device": (
        lambda m: tar_of([*m, member("a", type=tarfile.CHRTYPE)]),
        "in it is not a plain file",
    ),
    "a name twice": (lambda m: tar_of([*m, m[-1]]), "more than once"),
    "an altered cubin": (lambda m: tar_of(altered(m, ".cubin")), "in it is cut off or altered"),
    "an altered and sealed cubin": (
        lambda m: relisted(altered(m, ".cubin")),
        "has a cubin that is cut off or altered",
    ),
    "altered and sealed PTX": (
        lambda m: relisted(altered(m, ".ptx.z")),
        "has a PTX file that is cut off or altered",
    ),
    "an entry of another key": (
        lambda m: relisted(swapped(m)),
        "is filed under another entry's key",
    ),
    "a file less": (lambda m: tar_of(m[:-1]), "and may be cut off"),
    "an entry's file less": (lambda m: relisted(m[:-1]), "and may be cut off"),
    "another format": (
        lambda m: tar_of([member(".kiln-bundle.json", b'{"format": 2}'), *m[1:]]),
        "is a bundle of another version of Kiln; export it with this one",
    ),
    "no format": (
        lambda m: tar_of([without_format(m), *m[1:]]),
        "is a bundle of another version of Kiln; export it with this one",
    ),
    "data behind the end": (
        lambda m: tar_of(m) + b"more",
        "is not imported: there is data behind its last file",
    ),
    "data behind the last file": (
        lambda m: tar_of(m).rstrip(b"\0").ljust(2**20, b"\0") + b"\1",
        "is not imported: there is data behind its last file",
    ),
    "no list": (
        lambda m: tar_of([member(".kiln-bundle.json", b'{"format": 1}'), *m[1:]]),
        "has no list of files",
    ),
    "a list that nests": (
        lambda m: tar_of([member(".kiln-bundle.json", b"[" * 100_000), *m[1:]]),
        "has no list of files",
    ),
    "a huge file": (
        lambda m: tar_of([*m, member("a", bytes(2**26 + 1))]),
        "in it is larger than 64 MiB",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, data, tmp_path):
    make, text = REFUSED[name]
    path = tmp_path / "bad.tar"
    path.write_bytes(make(members_of(data)))
    with pytest.raises(ValueError) as raised:
        kiln.import_cache(path)
    assert "\n" not in str(raised.value)
    check(raised.value, ValueError, text)


def test_every_truncation_is_refused(data, tmp_path):
    path = tmp_path / "short.tar"
    # The last two blocks of a tar are empty, and fill up to 10 KiB: without them all is there.
    content = len(data.rstrip(b"\0"))
    for size in [0, 1, 511, 512, 1024, content // 2, content - 513, content - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(ValueError):
            kiln.import_cache(path)


def test_nothing_of_a_faulty_bundle_is_written(kiln_command, data, cache_dir, tmp_path):
    path = tmp_path / "bad.tar"
    path.write_bytes(tar_of(altered(members_of(data), ".cubin")))
    run = kiln_command("cache", "import", path)
    assert (run.code, run.stdout, cache_dir.exists()) == (CHECK_FAILED, "", False)


def test_from_python(made, data, tmp_path):
    kiln.prewarm(ONE_KERNEL, ARCH)
    report = kiln.export_cache(tmp_path / "one.tar", ONE_KERNEL, ARCH)
    assert report["sha256"] == hashlib.sha256((tmp_path / "one.tar").read_bytes()).hexdigest()
    counts = kiln.import_cache(tmp_path / "one.tar", report["sha256"].upper())
    assert counts["present"] == counts["kernels"] == report["kernels"] >= 1
    with pytest.raises(ValueError):
        bundle.read_kernels(["0" * 64])


def test_import_beside_running_processes(made, environment, kiln_command):
    imports = [
        subprocess.Popen(
            [sys.executable, "-m", "kiln", "cache", "import", made["report"]["path"]],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        for _ in range(4)
    ]
    call = run_call(environment)
    assert [one.wait(120) for one in imports] == [OK] * 4
    assert call["value"] == 64.0
    # A call that comes before the first import stores PTX alone, under a key of its own.
    verified = kiln_command("cache", "verify", "--json").json()
    assert verified == {"checked": 1 + call["compiles"], "faults": []}
    again = kiln_command("cache", "import", made["report"]["path"], "--json").json()
    assert (again["imported"], again["present"]) == (0, 1)
