"""The C++ example, built against an installed Kiln with a plain C++ compiler, runs on the GPU."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TOOLKIT = shutil.which("nvcc") or pathlib.Path("/usr/local/cuda/bin/nvcc").exists()


def run(*command):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not TOOLKIT, reason="needs the CUDA toolkit: the example links its runtime")
def test_the_cpp_example(tmp_path):
    builds = [ROOT / "build" / name for name in ("gpu", "release", "dev")]
    builds = [build for build in builds if (build / "CMakeCache.txt").exists()]
    assert builds, "no CMake build in build/: run scripts/gpu.sh or make build first"
    prefix = tmp_path / "prefix"
    run("cmake", "--install", builds[0], "--component", "cpp", "--prefix", prefix)
    source, build = ROOT / "examples" / "cpp", tmp_path / "build"
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    out = run(build / "first_call")
    assert out.splitlines()[-1].endswith(": ok"), out
    assert '"compiles":' in out
