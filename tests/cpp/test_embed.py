"""Kiln inside another CMake project: configured, and the project's own file compiled.

Building all of Kiln once more would take minutes and show nothing that `make build` does not.
"""

import json
import pathlib
import re
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
    rooms = [entry["command"] for entry in entries if "/jit/" in entry["file"]]
    assert rooms and all("-DKILN_HIDE_API" in room for room in rooms)


def test_it_is_shared_where_the_project_asks_for_that(configure, tmp_path):
    assert "kiln is a SHARED_LIBRARY" in configure("fetch_content", "-DBUILD_SHARED_LIBS=ON")
    assert "KILN_HIDE_API" not in (tmp_path / "build" / "compile_commands.json").read_text()


@pytest.mark.parametrize(("option", "expected"), [("", "DEFAULT"), ("-DKILN_HIDE_API", "HIDDEN")])
def test_a_static_library_is_not_exported_by_what_links_it(run, tmp_path, option, expected):
    """The build above compiles it with the option, and so its symbols are hidden."""
    source = tmp_path / "definitions.cpp"
    source.write_text(
        "#include <kiln/c.h>\n#include <kiln/control.h>\n"
        "std::string kiln::version() { return {}; }\n"
        'extern "C" int kiln_abi_version(void) { return 0; }\n'
    )
    command = ["c++", "-std=c++20", "-fvisibility=hidden", f"-I{ROOT}/jit/include", "-c", source]
    run(*command, *option.split(), "-o", tmp_path / "definitions.o")
    symbols = run("readelf", "-sW", tmp_path / "definitions.o").splitlines()
    defined = [line.split() for line in symbols if re.search(r"_version|kiln7versionB", line)]
    assert [line[5] for line in defined] == [expected] * 2, symbols
