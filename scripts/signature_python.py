"""Python files from the description of the operations: kiln/jit.py, the stub of what is compiled,
and what stands for kiln.jit where PyTorch traces."""

from __future__ import annotations

import ast

from signature_model import DESCRIPTION, WIDTH, Operation, Operator, Parameter, packed, types_of

TRACED = "python/kiln/operators/_traced"  # a folder
VARIANT = "variant"  # the parameter that operators of kiln/operators/_variants.py take
# Those of kiln/operators/_epilogues.py: the epilogue, and the values of one that is a text.
EPILOGUE, EPILOGUE_VALUES = "epilogue", ("params", "tensors")
APPENDED = ("k_new", "v_new", "rotary_cos", "rotary_sin", "rotary_interleaved")
CLASSES = ("Epilogue", "Variant")  # of kiln._core
# Operations that are Python, and their modules.
PYTHON = {"flex_attention": "flex", "grouped_mm": "grouped_mm"}
NUMBERS = ("flag", "integer", "number")  # what kiln/_numbers.py converts with
OPENING = f"# Written by scripts/signatures.py from {DESCRIPTION}.\n"


def files(operations: tuple[Operation, ...]) -> dict[str, str]:
    """The text of each file, by its path."""
    return {
        "python/kiln/jit.py": _jit(operations),
        "python/kiln/_operations.pyi": _stub(operations),
        "python/kiln/_explanations.pyi": _explanations(operations),
        "python/kiln/operators/_schemas.py": _schemas(operations),
        **{f"{TRACED}/{o.name}.py": _traced(o) for o in operations},
    }


def _jit(operations: tuple[Operation, ...]) -> str:
    names = [*CLASSES, *sorted(o.name for o in operations)]
    imports = "".join(f"    {name},\n" for name in names)
    modules = "".join(f"from .{module} import {name}\n" for name, module in PYTHON.items())
    exported = [*CLASSES, *sorted([*names[len(CLASSES) :], *PYTHON])]
    exports = "".join(f'    "{name}",\n' for name in exported)
    manual = "Most are one C entry each; help(jit.flash_attention) is its manual."
    return (
        f'{OPENING}"""The operations. {manual}"""'
        f"\n\nfrom ._core import (\n{imports})\n{modules}\n__all__ = [\n{exports}]\n"
    )


def _stub(operations: tuple[Operation, ...]) -> str:
    aliases = []
    for found in types_of(operations):
        line = f"{found.name}: TypeAlias = {found.python}".replace("'", '"')
        if len(line) > WIDTH:
            head, _, rest = line.partition("[")
            line = f"{head}[\n    {rest[:-1]}\n]"
        aliases.append(line)
    functions = [_head(o, "", "Any", annotated=True) + " ...\n" for o in operations]
    return (
        f"{OPENING}# kiln._core holds the functions; this is a stub of it alone.\n"
        "from collections.abc import Sequence\n"
        "from typing import Any, Literal, TypeAlias\n\n"
        "from ._core import BoundEpilogue, BoundVariant, Epilogue, Variant\n\n"
        + "\n".join(aliases)
        + "\n\n"
        + "".join(functions)
    )


def _explanations(operations: tuple[Operation, ...]) -> str:
    names = sorted(found.name for found in types_of(operations))
    imports = "".join(f"    {name},\n" for name in names)
    functions = [_head(o, "explain_", "str", annotated=True) + " ...\n" for o in operations]
    return (
        f"{OPENING}# kiln._core holds the functions; this is a stub of it alone.\n"
        f"from ._operations import (\n{imports})\n\n" + "".join(functions)
    )


def _head(operation: Operation, prefix: str, returns: str, annotated: bool) -> str:
    lines = []
    for i, parameter in enumerate(operation.parameters):
        if i == len(operation.positional):
            lines.append("    *,\n")
        default = "" if parameter.default is None else f" = {parameter.default}"
        text = parameter.text if annotated else f"{parameter.name}: Any{default}"
        lines.append(f"    {text},\n")
    return f"def {prefix}{operation.name}(\n{''.join(lines)}) -> {returns}:"


# ----------------------------------------------------------------------------- PyTorch's operators


def _schema_default(parameter: Parameter) -> str:
    assert parameter.default is not None
    value = parameter.type.torch_default or ast.literal_eval(parameter.default)
    if isinstance(value, str):
        return f"'{value}'"
    return str(list(value) if isinstance(value, tuple) else value)


def _schema_inputs(operation: Operation) -> list[str]:
    parts: list[str] = []
    for parameter in operation.inputs:
        if parameter.is_keyword and "*" not in parts:
            parts.append("*")
        mark = "?" if parameter.is_optional else ""
        default = "" if parameter.default is None else f"={_schema_default(parameter)}"
        parts.append(f"{parameter.type.torch}{mark} {parameter.name}{default}")
    return parts


def _schema(operation: Operation, operator: Operator) -> str:
    """As an f-string over the constant of the operation's inputs."""
    inputs = f"{{_{operation.name.upper()}}}"
    if operator.results:
        returned = ", ".join("Tensor" for _ in operator.results)
        result = f"({returned})" if len(operator.results) > 1 else returned
        return f"({inputs}) -> {result}"
    written = [] if any(p.is_keyword for p in operation.inputs) else ["*"]
    for letter, parameter in zip("abcdefgh", operation.written):
        mark, default = ("", "") if operation.is_needed(parameter) else ("?", "=None")
        written.append(f"Tensor({letter}!){mark} {parameter.name}{default}")
    return f"({inputs}, {', '.join(written)}) -> ()"


def _traced(operation: Operation) -> str:
    results = f"from .. import {operation.name} as _{operation.name}\n"
    converters = {str(p.type.convert) for p in operation.parameters if p.type.convert is not None}
    numbers = sorted(converters.intersection(NUMBERS))
    traces_variants = _traces_variants(operation)
    traces_epilogues = _traces_epilogues(operation)
    refuses = bool(_refused(operation))
    writes = any(p.name == "out" for p in operation.written)
    more = ["check", *["refuse"] * refuses, *["write_to"] * writes]
    values = sorted([*converters.difference(NUMBERS), *more])
    return f'''\
{OPENING}"""What stands for jit.{operation.name} where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

{f"from ..._numbers import {', '.join(numbers)}" + chr(10) if numbers else ""}\
{results if _makes_results(operation) else ""}\
{"from .._appends import call as call_with_append" + chr(10) if _traces_appends(operation) else ""}\
{"from .._epilogues import call as call_with_epilogue" + chr(10) if traces_epilogues else ""}\
from .._values import {", ".join(values)}
{"from .._variants import call as call_with_variant" + chr(10) if traces_variants else ""}\

_OP = "{operation.name}"
_OPS = torch.ops.kiln


{_function(operation)}'''


def _traces_variants(operation: Operation) -> bool:
    """Whether operators beside the operation's own take its variant."""
    return "lse" in operation.asked and any(p.name == VARIANT for p in operation.parameters)


def _traces_epilogues(operation: Operation) -> bool:
    """Whether operators beside the operation's own take an epilogue with values."""
    names = {p.name for p in operation.parameters}
    return {EPILOGUE, *EPILOGUE_VALUES} <= names


def _traces_appends(operation: Operation) -> bool:
    """Whether operators beside the operation's own take new keys."""
    return set(APPENDED) <= {p.name for p in operation.parameters}


def _refused(operation: Operation) -> list[str]:
    """The arguments that no operator takes."""
    names = [p.name for p in operation.parameters if p.type.torch is None and p.is_optional]
    taken = {VARIANT} if _traces_variants(operation) else set()
    taken |= set(EPILOGUE_VALUES) if _traces_epilogues(operation) else set()
    taken |= set(APPENDED) if _traces_appends(operation) else set()
    return [name for name in names if name not in taken]


def _schemas(operations: tuple[Operation, ...]) -> str:
    constants, rows = [], []
    for operation in operations:
        constants.append(_constant(operation))
        rows += [_row(operation, operator) for operator in operation.operators]
    return f'''\
{OPENING}"""The operators' schemas."""

from __future__ import annotations

from typing import NamedTuple


class Schema(NamedTuple):
    """An operator: its name, what follows it in its definition, the operation, the names of the
    arguments that may be positional, the results (none: it writes to its arguments), and those
    of the results that the operation returns only when asked to."""

    name: str
    text: str
    operation: str
    positional: tuple[str, ...]
    results: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


{"".join(constants)}
SCHEMAS = (
{"".join(rows)})
'''


def _constant(operation: Operation) -> str:
    """The schema's inputs, as ruff lays a string out."""
    name, lines = f"_{operation.name.upper()}", packed(_schema_inputs(operation), WIDTH - 8)
    alone = f'{name} = "{lines[0]}"\n'
    if len(lines) == 1 and len(alone) <= WIDTH + 1:
        return alone
    texts = [f'    "{line} "\n' for line in lines[:-1]] + [f'    "{lines[-1]}"\n']
    return f"{name} = (\n{''.join(texts)})\n"


def _names(names: tuple[str, ...]) -> str:
    inside = ", ".join(f'"{name}"' for name in names)
    return f"({inside},)" if len(names) == 1 else f"({inside})"


def _row(operation: Operation, operator: Operator) -> str:
    positional = tuple(p.name for p in operation.inputs if not p.is_keyword)
    asked = tuple(r for r in operator.results if r in operation.asked)
    return (
        "    Schema(\n"
        f'        "{operator.name}",\n'
        f'        f"{_schema(operation, operator)}",\n'
        f'        "{operation.name}",\n'
        f"        {_names(positional)},\n"
        + (f"        {_names(operator.results)},\n" if operator.results else "")
        + (f"        {_names(asked)},\n" if asked else "")
        + "    ),\n"
    )


def _function(operation: Operation) -> str:
    body = [_head(operation, "", "Any", annotated=False)]
    add = body.append
    add(f'    """kiln.jit.{operation.name} as operators of PyTorch."""')
    body += [f"    refuse(_OP, {name}={name})" for name in _refused(operation)]
    add("    given = {")
    body += [f'        "{t.name}": {t.name},' for t in operation.tensors if t.is_traced]
    add("    }")
    add("    check(_OP, given)")
    body += _alone(operation)
    add("    options = {")
    body += [f'        "{p.name}": {_value(p)},' for p in operation.inputs if p.is_keyword]
    add("    }")
    if _traces_appends(operation):
        inputs = ", ".join(p.name for p in operation.inputs if not p.is_keyword)
        add("    new = {")
        parameters = {p.name: p for p in operation.parameters}
        body += [f'        "{name}": {_value(parameters[name])},' for name in APPENDED]
        add("    }")
        add(f"    if any(x is not None for x in ({', '.join(APPENDED[:-1])})):")
        arguments = f"({inputs}), new, {VARIANT}, options, out, lse, return_lse"
        body += _call("        return ", "call_with_append", arguments)
    if _traces_variants(operation):
        inputs = ", ".join(p.name for p in operation.inputs if not p.is_keyword)
        add(f"    if {VARIANT} is not None:")
        add(f"        first = ({inputs})")
        arguments = f"_OP, first, {VARIANT}, options, out, lse, return_lse"
        body += _call("        return ", "call_with_variant", arguments)
    if _traces_epilogues(operation):
        inputs = ", ".join(p.name for p in operation.inputs if not p.is_keyword)
        values = ", ".join(EPILOGUE_VALUES)
        add(f"    if not isinstance({EPILOGUE}, (str, type(None))) or params or tensors:")
        arguments = f"_OP, ({inputs}), {EPILOGUE}, {values}, options, out"
        body += _call("        return ", "call_with_epilogue", arguments)
    body += _calls(operation)
    return "\n".join(body) + "\n"


def _value(parameter: Parameter) -> str:
    name, convert = parameter.name, parameter.type.convert
    if convert is None:
        return name
    told = f'_OP, "{name}", {name}' if convert in (*NUMBERS, "one_flag") else f"_OP, {name}"
    converted = f"{convert}({told})"
    return f"None if {name} is None else {converted}" if parameter.is_optional else converted


def _alone(operation: Operation) -> list[str]:
    """Checks of what is no option: positional values, and what asks for results."""
    lines = []
    for p in operation.parameters:
        if p.is_input and not p.is_keyword and p.type.convert is not None:
            lines.append(f"    {p.name} = {_value(p)}")
        elif p.asks_for is not None:
            lines.append(f"    {_value(p)}")
    return lines


def _call(before: str, function: str, arguments: str) -> list[str]:
    """As ruff lays a call out."""
    line = f"{before}{function}({arguments})"
    if len(line) <= WIDTH:
        return [line]
    indent = " " * (len(before) - len(before.lstrip()))
    return [f"{before}{function}(", f"{indent}    {arguments}", f"{indent})"]


def _returns(operation: Operation, inputs: str, indent: str) -> list[str]:
    """Calls of the operators that return new tensors, that with most results first."""
    lines = []
    new = [operator for operator in operation.operators if operator.results]
    for operator in sorted(new, key=lambda o: -len(o.results)):
        asked = [operation.asked[r] for r in operator.results if r in operation.asked]
        if asked:
            lines.append(f"{indent}if {' and '.join(asked)}:")
        before = f"{indent}{'    ' if asked else ''}return "
        lines += _call(before, f"_OPS.{operator.name}", inputs)
    return lines


def _makes_results(operation: Operation) -> bool:
    """Whether one result may be given and another not."""
    return bool(operation.made) if operation.updates else len(operation.written) > 1


def _updates(operation: Operation, inputs: str) -> list[str]:
    """The call of the operator that returns nothing."""
    lines = []
    for name, source in operation.made.items():
        lines.append(f"    if {name} is None and {source} is not None:")
        lines += _call(f"        {name} = ", f"_{operation.name}.{name}", inputs)
    given = ", ".join(f"{p.name}={p.name}" for p in operation.written)
    lines += _call("    ", f"_OPS.{operation.name}", f"{inputs}, {given}")
    return [*lines, *(f"    return {name}" for name in operation.made)]


def _calls(operation: Operation) -> list[str]:
    inputs = ", ".join([*(p.name for p in operation.inputs if not p.is_keyword), "**options"])
    if operation.updates:
        return _updates(operation, inputs)
    if not operation.written:
        return _returns(operation, inputs, "    ")
    written = [p.name for p in operation.written]
    lines = [f"    if {' and '.join(f'{name} is None' for name in written)}:"]
    lines += _returns(operation, inputs, "        ")
    results = max((operator.results for operator in operation.operators), key=len)
    for name in results if _makes_results(operation) else ():
        asked = operation.asked.get(name)
        lines.append(f"    if {name} is None" + (f" and {asked}:" if asked else ":"))
        lines += _call(f"        {name} = ", f"_{operation.name}.{name}", inputs)
    given = ", ".join(f"{name}={name}" for name in written)
    writes = f"_OPS.{operation.name}_out"
    if "out" in written:
        lines += _call("    ", "write_to", f"{writes}, {inputs}, {given}")
    else:
        lines += _call("    ", writes, f"{inputs}, {given}")
    always = [name for name in results if name not in operation.asked]
    lines.append(f"    return {_returned(operation, results, always)}")
    return lines


def _returned(operation: Operation, results: tuple[str, ...], always: list[str]) -> str:
    text = always[0] if len(always) == 1 else f"({', '.join(always)})"
    if len(always) == len(results):
        return text
    (asked,) = (operation.asked[name] for name in results if name in operation.asked)
    return f"({', '.join(results)}) if {asked} else {text}"
