"""Kiln inside another CMake project. Configured, and the project's own file checked by the compiler:
building all of Kiln once more would take minutes and show nothing that `make build` does not."""

import json
import pathlib
import shlex

import pytest

ROOT = pathlib.Path(__file__).parents[2]
WAYS = {
    "add_subdirectory": 'add_subdirectory("{root}" kiln)',
    "fetch_content": (
        "include(FetchContent)\n"
        'FetchContent_Declare(kiln SOURCE_DIR "{root}")\n'
        "FetchContent_MakeAvailable(kiln)"
    ),
}
PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES CXX)
{way}
add_executable(outside "{root}/examples/cpp/01_first_call.cpp")
target_link_libraries(outside PRIVATE kiln::kiln)
get_target_property(kind kiln TYPE)
message(STATUS "kiln is a ${{kind}}")
"""


@pytest.fixture
def configure(run, toolkit, tmp_path):
    def configure(way, *options):
        text = PROJECT.format(way=WAYS[way].format(root=ROOT), root=ROOT)
        (tmp_path / "CMakeLists.txt").write_text(text)
        # Had anything asked for Python or pybind11, a required package would be an error now.
        disabled = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("Python", "pybind11")]
        command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja"]
        options = [*disabled, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options]
        return run(*command, *options, CUDA_HOME=toolkit)

    return configure


@pytest.mark.parametrize("way", WAYS)
def test_it_configures_without_python_and_its_headers_compile(configure, run, tmp_path, way):
    assert "kiln is a STATIC_LIBRARY" in configure(way)
    build = tmp_path / "build"
    cache = (build / "CMakeCache.txt").read_text()
    assert "Python_EXECUTABLE" not in cache and "pybind11_DIR" not in cache
    targets = run("cmake", "--build", build, "--target", "help")
    assert "libkiln.a" in targets
    assert "kiln_cpu_tests" not in targets and "_core" not in targets
    assert not [
        path for path in build.rglob("cmake_install.cmake") if "kilnConfig" in path.read_text()
    ]
    entries = json.loads((build / "compile_commands.json").read_text())
    (command,) = [entry["command"] for entry in entries if "01_first_call" in entry["file"]]
    run(*shlex.split(command), "-fsyntax-only")


def test_it_is_shared_where_the_project_asks_for_that(configure):
    assert "kiln is a SHARED_LIBRARY" in configure("fetch_content", "-DBUILD_SHARED_LIBS=ON")
