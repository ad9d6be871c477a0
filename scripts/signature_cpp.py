"""C++ files from the description of the operations: python/src/generated/."""

from __future__ import annotations

import textwrap

from signature_model import DESCRIPTION, WIDTH, Operation, Parameter, packed

FOLDER = "python/src/generated"
# How a C++ kernel takes an argument of a schema's type, and keeps it.
READERS = {
    "Tensor": ("TorchTensor", "tensor"),
    "Tensor?": ("TorchTensor", "optional_tensor"),
    "bool": ("bool", "boolean"),
    "float": ("double", "number"),
    "float?": ("std::optional<double>", "optional_number"),
    "str": ("TorchText", "text"),
    "str?": ("TorchText", "optional_text"),
    "SymInt": ("std::int64_t", "integer"),
    "SymInt?": ("std::optional<std::int64_t>", "optional_integer"),
    "SymInt[]": ("TorchList", "list"),
    "int[]?": ("TorchList", "optional_list"),
    "ScalarType?": ("std::optional<std::int32_t>", "optional_dtype"),
}


def files(operations: tuple[Operation, ...]) -> dict[str, str]:
    """The text of each file, by its path."""
    texts = {
        f"{FOLDER}/methods.cpp": _methods(operations),
        f"{FOLDER}/torch_operators.cpp": _torch_operators(operations),
    }
    for operation in operations:
        texts[f"{FOLDER}/{operation.name}.h"] = _signature(operation)
        texts[f"{FOLDER}/torch_{operation.name}.h"] = _torch_arguments(operation)
    return texts


def _opening(what: str) -> str:
    text = f"Written by scripts/signatures.py from {DESCRIPTION}: {what}"
    return "".join(f"// {line}\n" for line in textwrap.wrap(text, WIDTH - 3))


def _slot(parameter: Parameter) -> str:
    return "k" + "".join(word.capitalize() for word in parameter.name.split("_"))


def _lines(items: list[str], indent: int) -> str:
    return "\n".join(" " * indent + line for line in packed(items, WIDTH - indent))


def _tensor_list(operation: Operation, object_of: str, indent: int, none: str = "") -> str:
    """`none`: what stands for tensors that operators do not take."""
    lines = []
    for tensor in operation.tensors:
        written = ", true" if tensor.is_written else ""
        values = object_of.format(name=tensor.name, slot=_slot(tensor))
        if none and not tensor.is_traced:
            values = none
        lines.append(" " * indent + f'{{"{tensor.name}", {values}{written}}},')
    return "\n".join(lines)


def _signature(operation: Operation) -> str:
    accessors = "\n".join(
        f"    Argument& {tensor.name}() {{ return all[{i}]; }}\n"
        f"    const Argument& {tensor.name}() const {{ return all[{i}]; }}"
        for i, tensor in enumerate(operation.tensors)
    )
    slots = _lines([_slot(p) for p in operation.parameters] + ["kSlots"], 4)
    names = _lines([f'"{p.name}"' for p in operation.parameters], 6)
    numbers = "".join(f"    visit({_slot(p)}, options.{p.name});\n" for p in operation.numbers)
    return f"""\
{_opening(f"the parameters of jit.{operation.name}, and its C entries.")}\
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {{

struct {operation.type_name}Signature {{
  static constexpr const char* kOp = "{operation.name}";
  static constexpr int kPositional = {len(operation.positional)};  // the rest is keyword-only
  static constexpr int kRequired = {len(operation.required)};
  static constexpr int kRequiredTensors = {sum(p.is_tensor for p in operation.required)};

  enum Slot {{
{slots}
  }};
  static constexpr std::array<const char*, kSlots> kNames = {{
{names}}};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {{
    std::array<Argument, {len(operation.tensors)}> all;

{accessors}
  }};

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {{
    return {{{{{{
{_tensor_list(operation, "slots[{slot}]", 8)}
    }}}}}};
  }}

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {{
{numbers}  }}
}};

// In the file of this operation.
PyObject* {operation.name}_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_{operation.name}_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}}  // namespace kiln::python
"""


def _schema_type(parameter: Parameter) -> str:
    assert parameter.type.torch is not None
    return parameter.type.torch + ("?" if parameter.is_optional else "")


def _as_option(parameter: Parameter) -> str:
    if not _schema_type(parameter).startswith("float"):
        return parameter.name
    return f"float_number({parameter.name}, subject_of<Signature>(Signature::{_slot(parameter)}))"


def _set_numbers(operation: Operation) -> str:
    if not operation.numbers:
        return ""
    numbers = "".join(f"    options.{p.name} = {_as_option(p)};\n" for p in operation.numbers)
    names = ""  # of the subjects of floats
    if any(_schema_type(p).startswith("float") for p in operation.numbers):
        names = f"    using Signature = {operation.type_name}Signature;\n"
    return f"""
  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {{
{names}{numbers}  }}
"""


def _torch_arguments(operation: Operation) -> str:
    members, readers = [], []
    for parameter in operation.inputs:
        member, reader = READERS[_schema_type(parameter)]
        members.append(f"  {member} {parameter.name};")
        readers.append(f"{parameter.name}(in.{reader}())")
    for parameter in operation.written:
        reader = "tensor" if operation.is_needed(parameter) else "optional_tensor"
        members.append(f"  TorchTensor {parameter.name};")
        readers.append(f"{parameter.name}(writes ? in.{reader}() : nullptr)")
    given = "TorchArguments in, bool writes" if operation.written else "TorchArguments in"
    explicit = "" if operation.written else "explicit "
    listed = ",\n        ".join(readers)
    return f"""\
{_opening(f"the arguments of torch.ops.kiln.{operation.name} in its schemas' order.")}\
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/{operation.name}.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {{

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct {operation.type_name}Arguments {{
{chr(10).join(members)}

  {explicit}{operation.type_name}Arguments({given}) noexcept
      : {listed} {{}}

  {operation.type_name}Signature::Tensors<TorchArgument> tensors() const {{
    return {{{{{{
{_tensor_list(operation, "{name}.get()", 8, none="nullptr")}
    }}}}}};
  }}
{_set_numbers(operation)}}};

// In torch_{operation.name}.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_{operation.name}(TorchSlot* stack, std::size_t new_results);

}}  // namespace kiln::python
"""


def _text_signature(operation: Operation, name: str) -> str:
    """What CPython's inspect.signature reads off the docstring, as a C string of several lines."""
    parts = []
    for i, parameter in enumerate(operation.parameters):
        if parameter.is_keyword and i == len(operation.positional):
            parts.append("*")
        default = "" if parameter.default is None else f"={parameter.default}"
        parts.append(parameter.name + default)
    parts[0], parts[-1] = f"{name}({parts[0]}", f"{parts[-1]})"
    lines = [line.replace('"', '\\"') for line in packed(parts, WIDTH - 16)]
    lines[:-1] = [f"{line} " for line in lines[:-1]]
    return "\n".join(f'    "{line}"' for line in lines)


def _methods(operations: tuple[Operation, ...]) -> str:
    includes = "".join(f'#include "python/src/generated/{o.name}.h"\n' for o in operations)
    docs, methods = [], []
    for operation in operations:
        for prefix, text in (("", operation.name), ("explain_", "explain")):
            name = prefix + operation.name
            constant = "k" + "".join(word.capitalize() for word in name.split("_")) + "Doc"
            docs.append(
                f"constexpr const char* {constant} =\n"
                f"{_text_signature(operation, name)}\n"
                '    "\\n--\\n\\n"\n'
                f'#include "python/src/docs/{text}.inc"\n'
                "    ;\n"
            )
            methods.append(
                f'    {{"{name}", as_method(&{name}_entry), kFlags,\n     {constant}}},\n'
            )
    return f"""\
{_opening("the C entries under their names, each with its signature and manual.")}\
#include "python/src/entries.h"

{includes}
namespace kiln::python {{
namespace {{

{chr(10).join(docs)}
constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;

template <class Function>
PyCFunction as_method(Function* function) {{
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}}

PyMethodDef methods[] = {{
{"".join(methods)}}};

}}  // namespace

std::span<PyMethodDef> operation_methods() {{ return methods; }}

}}  // namespace kiln::python
"""


def _torch_operators(operations: tuple[Operation, ...]) -> str:
    includes = "".join(f'#include "python/src/generated/torch_{o.name}.h"\n' for o in operations)
    rows = "".join(
        f'    {{"{operator.name}", torch_kernel<compute_{o.name}, {len(operator.results)}>}},\n'
        for o in operations
        for operator in o.operators
    )
    return f"""\
{_opening("the operators torch.ops.kiln.* and their C++ kernels.")}\
#include "python/src/torch_kernels.h"

{includes}
namespace kiln::python {{
namespace {{

constexpr TorchOperator operators[] = {{
{rows}}};

}}  // namespace

std::span<const TorchOperator> torch_operators() {{ return operators; }}

}}  // namespace kiln::python
"""
