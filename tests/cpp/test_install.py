"""The installed library: found by CMake and pkg-config, exporting the public API and no more."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "cpp"
HEADERS = sorted(path.name for path in (ROOT / "jit" / "include" / "kiln").glob("*.h"))


def check_examples(run, folder, **variables):
    """Each example checks its own numbers, on the emulated device where there is no GPU."""
    first = run(folder / "01_first_call", **variables)
    assert first.splitlines()[-1].endswith(": ok"), first
    assert '"kernels_resident":1' in first, first
    second = run(folder / "02_from_c", **variables)
    assert second.splitlines()[-1].endswith(": ok"), second


only_static = pytest.mark.parametrize("prefix", ["static"], indirect=True)
only_shared = pytest.mark.parametrize("prefix", ["shared"], indirect=True)


def test_the_examples_by_find_package(run, prefix, tmp_path):
    run("cmake", "-S", EXAMPLES, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    check_examples(run, tmp_path)


def test_the_examples_by_pkg_config_and_bare_compilers(
    run, prefix, pkg_config, is_shared, tmp_path
):
    cflags = pkg_config("--cflags")
    libs = pkg_config("--libs")
    assert ("-lz" in libs) is not is_shared  # of a static library; a shared one knows its own
    cxx, c = EXAMPLES / "01_first_call.cpp", EXAMPLES / "02_from_c.c"
    run("c++", "-std=c++20", *cflags, cxx, *libs, "-o", tmp_path / cxx.stem)
    run("cc", "-std=c99", *cflags, c, *libs, "-o", tmp_path / c.stem)
    check_examples(run, tmp_path, LD_LIBRARY_PATH=next(prefix.rglob("libkiln.*")).parent)


def test_the_version_is_one(pkg_config):
    (version,) = re.findall(
        r"project\(kiln VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()
    )
    assert pkg_config("--modversion") == [version]


@only_shared
def test_a_c_project_needs_no_cpp_compiler(run, prefix, tmp_path):
    """CMake links a static library of C++ by the C++ compiler, so this is for the shared one."""
    lists = (EXAMPLES / "CMakeLists.txt").read_text().replace("LANGUAGES C CXX", "LANGUAGES C")
    lists = "\n".join(line for line in lists.splitlines() if ".cpp" not in line)
    (tmp_path / "CMakeLists.txt").write_text(lists.replace("IN ITEMS 01_first_call", "IN ITEMS"))
    for name in ("02_from_c.c", "memory.h"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    assert run(build / "02_from_c").splitlines()[-1].endswith(": ok")


@only_static  # the headers are the same
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_stands_alone(run, prefix, header, tmp_path):
    languages = [("c++", "-std=c++20", "cpp")]
    if header == "c.h":
        languages += [
            ("cc", "-std=c99", "c"),
            ("cc", "-std=c17", "c"),
            ("c++", "-std=c++11", "cpp"),
        ]
    for compiler, standard, suffix in languages:
        source = tmp_path / f"alone.{suffix}"
        source.write_text(f"#include <kiln/{header}>\n")
        strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
        run(compiler, standard, *strict, f"-I{prefix / 'include'}", source)


@only_shared
def test_a_shared_library_exports_the_public_api_alone(run, prefix):
    library = next(path for path in prefix.rglob("libkiln.so.*") if not path.is_symlink())
    lines = run("nm", "-D", "-C", "--defined-only", library).splitlines()
    names = [line.split(" ", 2)[2] for line in lines if " A " not in line]
    headers = {name: (prefix / "include" / "kiln" / name).read_text() for name in HEADERS}
    public = set(re.findall(r"\w+", "".join(headers.values())))
    foreign = [name for name in names if not set(re.findall(r"kiln::(\w+)", name)) <= public]
    foreign += [name for name in names if not re.match(r"(\w+ )*(for )?kiln(::|_)", name)]
    assert not foreign
    # Both languages are there, the C functions all of them, each under its own version.
    c_names = "c.h", "c_variant.h", "c_epilogue.h", "c_moe.h", "c_serving.h"
    c_headers = "".join(headers[name] for name in c_names)
    declared = re.findall(r"^\w[\w *]* (kiln_\w+)\(", c_headers, re.MULTILINE)
    declared.remove("kiln_contiguous")  # inline
    assert len(declared) > 15
    exported = sorted(name for name in names if name.startswith("kiln_"))
    assert exported == sorted(f"{name}@@KILN_1" for name in declared)
    assert any(re.match(r"kiln::flash_attention\(.*@@KILN_CXX_\d+\.\d+$", name) for name in names)
    assert "SONAME" in (dynamic := run("readelf", "-d", library))
    assert "[libkiln.so.1]" in dynamic
