"""Kiln as C++ and C users meet it: installed from a build of this tree, linked from outside."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CACHE = tempfile.TemporaryDirectory(prefix="kiln-cpp-tests-")


def nvidia_files(pattern):
    """Files of pip's packages, which a C++ program does not search by itself."""
    spec = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(folder) for folder in spec.submodule_search_locations] if spec else []
    return sorted(path for folder in folders for path in folder.glob(pattern))


def environment():
    """The kernels that tests/compile has put into `KILN_TEST_CACHE` are not compiled again."""
    variables = {
        **os.environ,
        "KILN_CACHE_DIR": os.environ.get("KILN_TEST_CACHE", CACHE.name),
        "KILN_CACHE_PATH": "",
    }
    for nvrtc in nvidia_files("*/lib/libnvrtc.so.1[23]"):
        variables.setdefault("KILN_NVRTC", str(nvrtc))
    for name in ("KILN_JIT", "KILN_DEVICE", "CXXFLAGS", "CFLAGS", "LDFLAGS"):
        variables.pop(name, None)
    return variables


@pytest.fixture(scope="session")
def run():
    """Runs a command that must succeed; returns what it printed."""

    def run(*command, **variables):
        done = subprocess.run(
            [str(word) for word in command],
            env={**environment(), **{name: str(value) for name, value in variables.items()}},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def toolkit():
    """A folder whose include/ holds CUDA's headers, as CUDA_HOME is: pip's, else the toolkit's."""
    for header in nvidia_files("*/include/cuda.h"):
        return header.parents[1]
    return pathlib.Path("/usr/local/cuda")


@pytest.fixture(scope="session")
def build():
    """A build of this tree with its C++ tests, which make both kinds of library."""
    builds = [ROOT / "build" / name for name in ("gpu", "dev")]
    builds = [build for build in builds if (build / "kiln_other").exists()]
    assert builds, "no build with C++ tests in build/: run make build or scripts/gpu.sh first"
    return builds[0]


@pytest.fixture(scope="session", params=["static", "shared"])
def prefix(request, build, run, tmp_path_factory):
    """What `cmake --install` gives, moved to another folder afterwards."""
    library = {"static": "libkiln.a", "shared": "libkiln.so"}[request.param]
    component = "cpp" if (build / "kiln" / library).exists() else "cpp_other"
    folder = tmp_path_factory.mktemp(request.param)
    run("cmake", "--install", build, "--component", component, "--prefix", folder / "first")
    assert all(path.name.startswith(library) for path in folder.rglob("libkiln.*"))
    return (folder / "first").rename(folder / "moved")


@pytest.fixture
def is_shared(prefix):
    """Whether the prefix holds libkiln.so; it holds one kind of library."""
    return not list(prefix.rglob("libkiln.a"))


@pytest.fixture
def pkg_config(run, prefix):
    """Asks pkg-config about the installed library; returns the words of its answer."""
    if shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config, which make setup installs")
    folders = [path.parent for path in prefix.rglob("kiln.pc")]
    assert len(folders) == 1
    search = f"{folders[0]}:{ROOT / '.deps' / 'usr' / 'lib' / 'x86_64-linux-gnu' / 'pkgconfig'}"
    return lambda *options: run("pkg-config", *options, "kiln", PKG_CONFIG_PATH=search).split()
