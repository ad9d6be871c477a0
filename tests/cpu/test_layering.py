"""The rooms' rules, read off the sources: who includes whom, what each file may hold, how long.

Every rule is a function of a file's text, so that the last test can show each of them failing.
"""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = {".h", ".cpp", ".c", ".cuh"}
SOURCES = CODE | {".py", ".pyi", ".sh", ".cmake"}
ROOMS = ("cache", "runtime", "jit", "python", "templates", "tests", "examples", "bench")
MAX_LINES = 400
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# Which of our own headers the files of a room may include, by prefix; the longest room that a file
# lies in counts. <...> is for others' headers. The public C++ headers are kiln/*.h, in jit/include.
OPERATOR = {"jit/op/", "runtime/device.h", "templates/", "kiln/"}
ALLOWED = {
    "cache/": {"cache/"},
    "runtime/": {"runtime/"},
    "jit/op/": {"jit/op/", "cache/", "runtime/", "kiln/"},
    "jit/compile/": {"jit/op/", "jit/compile/", "cache/", "runtime/", "kiln/"},
    "jit/tools/": {"jit/op/", "jit/compile/", "jit/tools/", "cache/", "runtime/", "kiln/"},
    "jit/api/": {"jit/", "cache/", "runtime/", "kiln/", "templates/"},
    "jit/include/": {"kiln/"},
    "python/": {"python/", "jit/", "cache/", "runtime/", "kiln/"},
    "tests/": {"tests/", "jit/", "cache/", "runtime/", "kiln/", "templates/"},
}
# Every other folder of jit/ is an operator, which knows itself and what all operators share.
SHARED_FOLDERS = {"op", "compile", "tools", "api", "include"}
OPERATORS = sorted(
    path.name
    for path in (ROOT / "jit").iterdir()
    if path.is_dir() and path.name not in SHARED_FOLDERS
)
for operator in OPERATORS:
    ALLOWED[f"jit/{operator}/"] = {f"jit/{operator}/", *OPERATOR}
# The only list of the operators.
ALLOWED["jit/families.cpp"] = {"jit/op/", *(f"jit/{name}/family.h" for name in OPERATORS)}
# Folders that know no operator, not even by name.
NAMELESS = ("jit/op/", "jit/compile/", "jit/tools/")


def allowed(name):
    """The prefixes that a file may include, or None where there is no rule."""
    room = max((room for room in ALLOWED if name.startswith(room)), key=len, default=None)
    return ALLOWED.get(room)


def sources(room, suffixes):
    files = (ROOT / room).rglob("*")
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.suffix in suffixes and "__pycache__" not in path.parts
    )


ALL_SOURCES = [name for room in (*ROOMS, "cmake", "scripts") for name in sources(room, SOURCES)]
ALL_CODE = [name for room in ROOMS for name in sources(room, CODE)]


def faults_of_layers(name, text):
    """Includes of one of our rooms that this file's room may not know."""
    prefixes = allowed(name)
    for bracket, header in INCLUDE.findall(text):
        beside = (ROOT / name).parent / header
        known = prefixes is None or header.startswith(tuple(prefixes)) or beside.is_file()
        if bracket == '"' and not known:
            yield f'{name} includes "{header}"; it may include {sorted(prefixes)}'
        if header.startswith("templates/") and not header.endswith("/params.h"):
            yield f'{name} includes "{header}"; of templates/ the host sees only params.h'
        if bracket == "<" and header.split("/")[0] in ROOMS:
            yield f"{name} includes <{header}>; our own headers are written in quotes"


def faults_of_names(name, text):
    """What operators share names none of them."""
    code = re.sub(r"//.*", "", text)
    for operator in OPERATORS:
        found = re.search(rf"\b(k?{operator.capitalize()}|{operator})(?=[A-Z_]|\b)\w*", code)
        if name.startswith(NAMELESS) and found:
            yield f"{name} names {found.group(0)}; only the operator's own folder and the API do"


def faults_of_device_code(name, text):
    """A template includes nothing from outside the templates, by its virtual name."""
    for bracket, header in INCLUDE.findall(text):
        if bracket == "<" or not header.startswith("/kiln/"):
            yield f'{name} includes {header}; device code includes "/kiln/..." names only'
        elif not (ROOT / "templates" / header.removeprefix("/kiln/")).is_file():
            yield f"{name} includes {header}, which is not a file under templates/"


def faults_of_frameworks(name, text):
    """No header of a framework: one binary serves every version of PyTorch."""
    for _, header in INCLUDE.findall(text):
        if re.match(r"(torch|ATen|c10|cupy|dlpack)/", header):
            yield f"{name} includes {header}; no framework's header is known to the C++ code"


def faults_of_public_headers(name, text):
    """Users need neither CUDA nor a JSON library, and none of our private headers."""
    for bracket, header in INCLUDE.findall(text):
        foreign = "/" in header or header.startswith(("cuda", "nvrtc"))
        if bracket == "<" and foreign:
            yield f"{name} includes {header}; public headers need the standard library alone"
        if bracket == '"' and not header.startswith("kiln/"):
            yield f"{name} includes {header}; public headers include only kiln/*.h of ours"


def faults_of_environment(name, text):
    """The environment is read once, in one file."""
    if name != "jit/compile/settings.cpp" and re.search(r"\b(secure_)?getenv\s*\(", text):
        yield f"{name} reads the environment; only jit/compile/settings.cpp may"


def faults_of_parsing(name, text):
    """JSON that others may have written is parsed within bounds, in one file."""
    if name != "cache/json_text.cpp" and re.search(r"\bjson::(parse|accept|sax_parse)\s*\(", text):
        yield f"{name} parses JSON; use parse_json of cache/json_text.h or jit/op/json_text.h"


def faults_of_linking(name, text):
    """The driver is called through the table of runtime/cuda alone, which opens it at first use."""
    calls = re.findall(r"(?<![\w.:>\"])(cu[A-Z]\w+)\s*\(", re.sub(r"//.*", "", text))
    if calls and not name.startswith(("runtime/cuda/", "tests/support/")):
        yield f"{name} calls {calls[0]}; only runtime/cuda/ talks to the driver"


def faults_of_size(name, text):
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{name} has {lines} lines; split it by concern at {MAX_LINES}"


def faults_of_places(name, text):
    """No path of the machine that a file was written on."""
    found = re.search(r"(?<![\w.$}])/(home|root|work|Users)/\w", text)
    if found:
        yield f"{name} names a machine's own path: {found.group(0)}..."


def faults_of_opening(name, text):
    """A file starts by saying what it is for; a .cpp may leave that to its header."""
    first = text.lstrip("\n").split("\n")[0]
    says = first.startswith(("//", "/*", "#", '"""', 'r"""'))
    if not says or first.startswith(("#pragma", "#include", "#if")):
        yield f"{name} starts with {first!r}; it should start by saying what it is for"


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def check(names, rule):
    assert names, "no files were found: the rule would pass on nothing"
    faults = [fault for name in names for fault in rule(name, read(name))]
    assert not faults, "\n" + "\n".join(faults)


HOST_CODE = [name for name in ALL_CODE if not name.startswith("templates/")]
DEVICE_CODE = sources("templates", {".cuh", ".h"})
LIBRARY_CODE = [name for room in ("cache", "runtime", "jit") for name in sources(room, CODE)]
PUBLIC_HEADERS = sources("jit/include", {".h"})
PRODUCT_CODE = LIBRARY_CODE + sources("python", CODE)
# This file's own examples break the rules on purpose.
OTHER_SOURCES = [name for name in ALL_SOURCES if name != "tests/cpu/test_layering.py"]
OPENING = [name for name in OTHER_SOURCES if not name.endswith((".cpp", ".pyi", "/__init__.py"))]

RULES = [
    (faults_of_layers, HOST_CODE, ("cache/a.h", '#include "runtime/device.h"\n')),
    (faults_of_layers, HOST_CODE, ("runtime/a.h", '#include "jit/compile/compiler.h"\n')),
    (faults_of_layers, HOST_CODE, ("jit/gemm/a.h", '#include "templates/gemm/gemm.cuh"\n')),
    (faults_of_layers, HOST_CODE, ("jit/gemm/a.h", "#include <cache/key.h>\n")),
    (faults_of_layers, HOST_CODE, ("jit/gemm/a.h", '#include "jit/attention/problem.h"\n')),
    (faults_of_layers, HOST_CODE, ("jit/gemm/a.h", '#include "jit/compile/settings.h"\n')),
    (faults_of_layers, HOST_CODE, ("jit/op/a.h", '#include "jit/compile/engine.h"\n')),
    (faults_of_layers, HOST_CODE, ("jit/op/a.h", '#include "jit/gemm/family.h"\n')),
    (faults_of_layers, HOST_CODE, ("jit/compile/a.h", '#include "jit/tools/spec.h"\n')),
    (faults_of_layers, HOST_CODE, ("jit/tools/a.h", '#include "jit/api/status.h"\n')),
    (faults_of_layers, HOST_CODE, ("jit/tools/a.h", '#include "jit/gemm/family.h"\n')),
    (faults_of_layers, HOST_CODE, ("jit/families.cpp", '#include "jit/gemm/config.h"\n')),
    (faults_of_names, HOST_CODE, ("jit/op/a.h", "void check(const GemmTraits&);\n")),
    (faults_of_names, HOST_CODE, ("jit/tools/a.cpp", 'if (op == "gemm") return;\n')),
    (faults_of_device_code, DEVICE_CODE, ("templates/a.cuh", "#include <cuda_fp16.h>\n")),
    (faults_of_device_code, DEVICE_CODE, ("templates/a.cuh", '#include "/kiln/none.cuh"\n')),
    (faults_of_frameworks, HOST_CODE, ("python/src/a.cpp", "#include <torch/extension.h>\n")),
    (faults_of_public_headers, PUBLIC_HEADERS, ("jit/include/kiln/a.h", "#include <cuda.h>\n")),
    (faults_of_public_headers, PUBLIC_HEADERS, ("jit/include/kiln/a.h", '#include "jit/a.h"\n')),
    (faults_of_environment, PRODUCT_CODE, ("jit/a.cpp", 'std::getenv("KILN_JIT");\n')),
    (faults_of_parsing, PRODUCT_CODE, ("jit/a.cpp", "auto v = nlohmann::json::parse(text);\n")),
    (faults_of_linking, PRODUCT_CODE, ("jit/a.cpp", "cuInit(0);\n")),
    (faults_of_size, OTHER_SOURCES, ("jit/a.cpp", "\n" * (MAX_LINES + 1))),
    (faults_of_places, OTHER_SOURCES, ("jit/a.cpp", '"/home/somebody/kiln"')),
    (faults_of_opening, OPENING, ("jit/a.h", "#pragma once\n")),
]


@pytest.mark.parametrize(
    ("rule", "names"),
    {rule.__name__: (rule, names) for rule, names, _ in RULES}.values(),
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_rule_holds(rule, names):
    check(names, rule)


@pytest.mark.parametrize(("rule", "names", "bad"), RULES)
def test_rule_can_fail(rule, names, bad):
    assert list(rule(*bad))
