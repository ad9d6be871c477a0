"""The operations as PyTorch operators, torch.ops.kiln.*: for torch.compile, torch.export and fake
tensors.

Importing this package imports torch and registers them. Eager calls of kiln.jit never come here:
they are one C entry. TRACED has the functions that stand for kiln.jit's where PyTorch traces: they
take the same arguments and call the operators. The module of an operation's name tells the shapes
and dtypes of its results, by a function for each.

The kernels for CUDA and the CPU are C++ functions, which PyTorch calls through its stable
C interface and without the GIL; NATIVE names the dispatch keys that have them. Other backends have
kernels in Python, kiln.jit's C entries again, and so has every backend where PyTorch is older than
2.11 or lacks that interface.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from .. import _core, jit
from ._appends import APPEND_SCHEMAS, APPEND_VARIANT_SCHEMAS
from ._epilogues import EPILOGUE_SCHEMAS
from ._epilogues import kernel as epilogue_kernel
from ._schemas import SCHEMAS, Schema
from ._values import check
from ._variants import VARIANT_SCHEMAS
from ._variants import kernel as variant_kernel

_LIBRARY = torch.library.Library("kiln", "DEF")


def _kernel(schema: Schema) -> Callable[..., Any]:
    """The C entry as an operator's kernel."""
    entry = getattr(_core, schema.operation)
    asked = {f"return_{name}": True for name in schema.asked}

    def compute(*args: Any, **kwargs: Any) -> Any:
        return entry(*args, **kwargs, **asked)

    def write(*args: Any, **kwargs: Any) -> None:
        # By name: the entry may take what is written to between the others.
        entry(**dict(zip(schema.positional, args)), **kwargs)

    return compute if schema.results else write


def _fake(schema: Schema) -> Callable[..., Any]:
    """Returns results with shapes and dtypes but without memory."""
    module = importlib.import_module(f"{__name__}.{schema.operation}")
    results = [getattr(module, name) for name in schema.results]

    def compute(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(schema.positional, args)), **kwargs}
        tensors = {name: x for name, x in given.items() if isinstance(x, torch.Tensor)}
        check(schema.operation, tensors)
        made = tuple(result(*args, **kwargs) for result in results)
        return made if len(made) > 1 else made[0]

    def write(*args: Any, **kwargs: Any) -> None:
        """Returns nothing, because the caller passes the results."""

    return compute if results else write


def register(library: Any, native: str = "libtorch_cpu.so") -> tuple[str, ...]:
    """Defines the operators in a library, with C++ kernels where the loaded libtorch takes them;
    returns the dispatch keys that these stand under."""
    kernels = {
        **{schema: _kernel(schema) for schema in (*SCHEMAS, *APPEND_SCHEMAS)},
        **{
            schema: variant_kernel(schema) for schema in (*VARIANT_SCHEMAS, *APPEND_VARIANT_SCHEMAS)
        },
        **{schema: epilogue_kernel(schema) for schema in EPILOGUE_SCHEMAS},
    }
    for schema, compute in kernels.items():
        library.define(schema.name + schema.text, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(schema.name, compute, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{schema.name}", _fake(schema), lib=library)
    keys = tuple(_core.register_torch_kernels(library.ns, native))
    if keys:
        for schema in SCHEMAS:
            # There is no backward pass, so PyTorch need not prepare one, which would cost time.
            # The kernels refuse inputs that would need it.
            library.impl(schema.name, torch.library.fallthrough_kernel, "Autograd")
    return keys


def _stand_in(operation: str) -> Callable[..., Any]:
    """What stands for the operation where PyTorch traces."""
    module = importlib.import_module(f"{__name__}._traced.{operation}")
    return getattr(module, operation)


NATIVE = register(_LIBRARY)
TRACED = {
    getattr(jit, operation): _stand_in(operation)
    for operation in {schema.operation: None for schema in SCHEMAS}
}
