"""Reads python/operations.pyi: the operations of kiln.jit, their parameters and operators."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
DESCRIPTION = "python/operations.pyi"
BUILTINS = {"bool": "flag", "float": "number", "str": None}  # and what checks them where traced
TENSORS = ("Tensor", "Written", "Eager", "Flags")  # of a call
WIDTH = 100  # columns of what is written


@dataclasses.dataclass(frozen=True)
class Type:
    """What stands behind a parameter's annotation, without its `| None`."""

    name: str
    python: str  # as a type checker sees it
    torch: str | None  # in an operator's schema; None: no argument of operators
    convert: str | None = None  # a function of kiln/operators/_values.py or kiln/_numbers.py
    torch_default: str | None = None  # where it is another than the parameter's


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of an operation."""

    name: str
    type: Type
    is_optional: bool  # may be None
    default: str | None  # Python's source of it
    is_keyword: bool

    @property
    def is_tensor(self) -> bool:
        return self.type.name in TENSORS

    @property
    def is_traced(self) -> bool:
        """Whether it is a tensor of an operator's."""
        return self.is_tensor and self.type.torch == "Tensor"

    @property
    def is_written(self) -> bool:
        return self.type.name == "Written"

    @property
    def asks_for(self) -> str | None:
        """The result that `return_x` asks for."""
        return self.name.removeprefix("return_") if self.name.startswith("return_") else None

    @property
    def is_number(self) -> bool:
        """Whether it is an option of the same name and type in C++."""
        return self.type.name in ("bool", "float") and self.asks_for is None

    @property
    def is_input(self) -> bool:
        """Whether every operator of the operation takes it."""
        return self.type.torch is not None and not self.is_written and self.asks_for is None

    @property
    def text(self) -> str:
        """As a stub spells it."""
        annotation = "Tensor" if self.is_written else self.type.name
        if self.is_optional:
            annotation += " | None"
        return f"{self.name}: {annotation}" + ("" if self.default is None else f" = {self.default}")


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator of PyTorch: it returns `results`, or writes to the caller's tensors."""

    name: str
    results: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Operation:
    """One function of kiln.jit."""

    name: str
    parameters: tuple[Parameter, ...]
    operators: tuple[Operator, ...]

    @property
    def type_name(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def positional(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if not p.is_keyword)

    @property
    def required(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.default is None)

    @property
    def tensors(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_tensor)

    @property
    def numbers(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_number)

    @property
    def written(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_written)

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_input)

    @property
    def asked(self) -> dict[str, str]:
        """The parameter that asks for each result that is not always returned."""
        return {p.asks_for: p.name for p in self.parameters if p.asks_for is not None}

    def is_needed(self, written: Parameter) -> bool:
        """Whether the operator that writes takes no None for it."""
        results = self.operators[0].results
        is_result = written.name in results and written.name not in self.asked
        return is_result or not written.is_optional

    @property
    def updates(self) -> bool:
        """Whether it has no operator that returns something."""
        return bool(self.written) and not any(o.results for o in self.operators)

    @property
    def made(self) -> dict[str, str]:
        """Of an operation that updates, what it makes where it is not given, and for what."""
        names = [p.name for p in self.written if p.is_optional and self.updates]
        return {name: name.removesuffix("_out") for name in names}


def operations(path: pathlib.Path = ROOT / DESCRIPTION) -> tuple[Operation, ...]:
    """The description, checked."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    types = {name: Type(name, name, name, convert) for name, convert in BUILTINS.items()}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Subscript):
            found = _type(node)
            types[found.name] = found
    found_operations = tuple(
        _operation(node, types)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name != "operators"
    )
    for operation in found_operations:
        _check(operation)
    return found_operations


def types_of(operations: tuple[Operation, ...]) -> list[Type]:
    """The types that a stub must name, in the order of their first use."""
    seen = {p.type.name: p.type for o in operations for p in o.parameters}
    return [t for name, t in seen.items() if name not in (*BUILTINS, "Written")]


def packed(items: list[str], width: int) -> list[str]:
    """Lines of the items with commas between them, as many on each as fit."""
    lines = [""]
    for i, item in enumerate(items):
        text = item + ("," if i + 1 < len(items) else "")
        if lines[-1] and len(lines[-1]) + 1 + len(text) > width:
            lines.append("")
        lines[-1] += f" {text}" if lines[-1] else text
    return lines


def _type(node: ast.AnnAssign) -> Type:
    assert isinstance(node.target, ast.Name) and isinstance(node.value, ast.Subscript)
    assert isinstance(node.value.slice, ast.Tuple)
    python, *marks = node.value.slice.elts
    values = [ast.literal_eval(mark) for mark in marks]
    return Type(node.target.id, ast.unparse(python), *values)


def _operation(node: ast.FunctionDef, types: dict[str, Type]) -> Operation:
    (decorator,) = node.decorator_list
    assert isinstance(decorator, ast.Call)
    operators = tuple(Operator(str(k.arg), ast.literal_eval(k.value)) for k in decorator.keywords)
    arguments = node.args
    missing: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    defaults = missing + list(arguments.defaults)
    given = [
        *(_parameter(a, d, False, types) for a, d in zip(arguments.args, defaults)),
        *(
            _parameter(a, d, True, types)
            for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults)
        ),
    ]
    return Operation(node.name, tuple(given), operators)


def _parameter(
    argument: ast.arg, default: ast.expr | None, is_keyword: bool, types: dict[str, Type]
) -> Parameter:
    annotation = argument.annotation
    is_optional = isinstance(annotation, ast.BinOp)
    if isinstance(annotation, ast.BinOp):
        annotation = annotation.left
    assert isinstance(annotation, ast.Name), f"{argument.arg}: the type must be one name"
    text = None if default is None else _source(ast.literal_eval(default))
    return Parameter(argument.arg, types[annotation.id], is_optional, text, is_keyword)


def _source(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _check(operation: Operation) -> None:
    faults = list(_faults(operation))
    if faults:
        raise ValueError(f"{DESCRIPTION}: {operation.name}: " + "; ".join(faults))


def _faults(operation: Operation) -> Iterator[str]:
    names = [p.name for p in operation.parameters]
    if operation.required != operation.parameters[: len(operation.required)]:
        yield "parameters without a default come first"
    if not operation.required or not operation.required[0].is_tensor:
        yield "the first parameter must be a tensor"
    if operation.operators[0] != Operator(operation.name, operation.operators[0].results):
        yield "the first operator has the operation's name"
    for operator in operation.operators:
        asked = [r for r in operator.results if r in operation.asked]
        expected = operation.name + "".join(f"_{r}" for r in asked)
        if operator.results and operator.name != expected:
            yield f"the operator that returns {operator.results} is called {expected}"
        writes = operation.name + ("" if operation.updates else "_out")
        if not operator.results and operator.name != writes:
            yield f"the operator that writes is called {writes}"
    if bool(operation.written) != any(not o.results for o in operation.operators):
        yield "an operator without results goes with Written parameters"
    if not set(operation.made.values()) <= set(names) or len(operation.made) > 1:
        yield "one tensor at most is made for another, which is called as it without _out"
    for result in operation.asked:
        if result not in names:
            yield f"return_{result} asks for no parameter"
