"""The texts of errors and warnings as the sources spell them: what docs/troubleshooting.md lists.

A C++ file's texts are its string literals of three words or more; a Python file's are the strings
of its `raise` statements. What is computed falls between the pieces. Files whose texts are no
errors are named here, with what they hold instead.
"""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("jit", "cache", "python/src", "runtime/cuda")
OTHERS = (
    "runtime/tensor_map_rules.cpp",
    "runtime/emulator/machine/options.cpp",
    "runtime/emulator/machine/emulated_device.cpp",
)
NO_ERRORS = {
    "jit/attention/table.cpp": "reasons of the config table",
    "jit/attention/sm90_table.cpp": "reasons of the config table",
    "jit/attention/sm90_choice.cpp": "reasons of explain",
    "jit/compile/compile_log.cpp": "what the compiler's log is searched for",
    "jit/tools/reasons.cpp": "reasons of explain",
    "jit/tools/explain.cpp": "reasons of explain",
    "jit/api/attention.cpp": "reasons of explain",
    "jit/api/gemm.cpp": "reasons of explain",
    "jit/gemm/rows.cpp": "reasons of explain",
    "jit/gemm/table.cpp": "reasons of the config table",
    "jit/norm/table.cpp": "reasons of the config table",
    "jit/norm/render.cpp": "generated source",
    "jit/append_kv/table.cpp": "reasons of the config table",
    "jit/append_kv/render.cpp": "generated source",
    "jit/merge_states/table.cpp": "reasons of the config table",
    "jit/merge_states/render.cpp": "generated source",
    "jit/moe_permute/table.cpp": "reasons of the config table",
    "jit/moe_permute/render.cpp": "generated source",
    "jit/moe_route/table.cpp": "reasons of the config table",
    "jit/moe_route/render.cpp": "generated source",
    "jit/quantize/table.cpp": "reasons of the config table",
    "jit/quantize/render.cpp": "generated source",
    "python/src/generated/methods.cpp": "help()",
    "jit/attention/render.cpp": "generated source",
    "jit/attention/mask_source.cpp": "generated source and reasons of explain",
    "jit/attention/mask_writer.cpp": "generated source",
    "jit/attention/element_bounds.cpp": "generated source",
    "jit/attention/logit_cap.cpp": "generated source",
    "jit/op/expression.cpp": "reasons of explain",
    "jit/op/expression_tokens.cpp": "reasons of explain",
    "jit/attention/render_sm90.cpp": "generated source",
    "jit/attention/tile_map.cpp": "generated source",
    "jit/api/tile_map.cpp": "what the log calls a kernel",
    "jit/attention/plan_family.cpp": "fields and generated source",
    "jit/attention/copy_keys_family.cpp": "fields and generated source",
    "jit/gemm/epilogue_source.cpp": "generated source",
    "jit/gemm/render.cpp": "generated source",
    "jit/gemm/render_sm90.cpp": "generated source",
    "jit/op/source_text.cpp": "generated source",
    "jit/op/user_values_source.cpp": "generated source",
    "jit/op/wgmma_source.cpp": "generated source",
    "python/src/module.cpp": "help()",
}
# The fields and templates of a family: names and help, no errors.
FIELD = re.compile(
    r"constexpr (?:Field|Template) k\w+(?:\[\])? = \{.*?\};$|\.means = \"[^\"]*\"",
    re.DOTALL | re.MULTILINE,
)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
RAW = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
ESCAPES = {r"\"": '"', r"\n": "\n", r"\\": "\\"}


def is_sentence(text):
    """Three words or more: shorter pieces are names, brackets and units."""
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and len(text.split()) >= 3


def pieces_of_cpp(text):
    text = re.sub(r"^\s*#.*$", "", RAW.sub('""', FIELD.sub("", text)), flags=re.MULTILINE)
    text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    joined, end = [], None
    for match in LITERAL.finditer(text):
        piece = re.sub(r"\\.", lambda escape: ESCAPES.get(escape[0], ""), match[1])
        if end is not None and not text[end : match.start()].strip():
            joined[-1] += piece  # adjacent literals are one
        else:
            joined.append(piece)
        end = match.end()
    return [piece for piece in joined if is_sentence(piece)]


def pieces_of_python(text):
    pieces = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            pieces += [
                part.value
                for argument in node.exc.args
                for part in ast.walk(argument)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
    return [piece for piece in pieces if is_sentence(piece)]


def sources():
    """(name, pieces) of every file that may hold an error's text."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.cpp"))]
    for path in [*paths, *(ROOT / name for name in OTHERS)]:
        name = path.relative_to(ROOT).as_posix()
        if name not in NO_ERRORS:
            yield name, pieces_of_cpp(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "python/kiln").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        yield name, pieces_of_python(path.read_text(encoding="utf-8"))
