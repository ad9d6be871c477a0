"""What PyTorch's operators take for the values that kiln.jit takes, and the checks of a traced
call, which the C entries do for the others."""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch import pyfunctorch

from .._numbers import flag, is_integer

_TILE_KEYS = ("block_m", "block_n", "block_k", "stages", "cluster", "splits")
# The names of dtypes, as python/src/dtypes.cpp has them.
_DTYPES = (
    "float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8", "bool",
    "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8",
)  # fmt: skip
_SHORT_DTYPES = {
    "f16": "float16", "half": "float16", "bf16": "bfloat16", "f32": "float32", "float": "float32",
    "f64": "float64", "i32": "int32", "i64": "int64", "u8": "uint8", "boolean": "bool",
    "i8": "int8",
}  # fmt: skip


def check(op: str, tensors: dict[str, Any]) -> None:
    """Checks what the C entries check, which see the tensors too late while PyTorch traces."""
    transformed = torch._C._are_functorch_transforms_active()
    if transformed and _has_tangents():
        raise ValueError(
            f"{op}: torch.func.jvp cannot differentiate it, and Kiln computes the forward pass "
            "only; call it outside of torch.func.jvp"
        )
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"{op}: {name} must be a torch.Tensor beside tensors that PyTorch traces with, "
                f"got {type(tensor).__name__}; pass tensors of PyTorch alone"
            )
        # An argument of torch.func.grad does not tell while Dynamo traces. What is computed with
        # it does, even a view.
        seen = tensor.view_as(tensor) if transformed else tensor
        if seen.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{op}: {name} requires grad, and Kiln computes the forward pass only; call it "
                "under torch.no_grad() or pass tensor.detach()"
            )


def _has_tangents() -> bool:
    """Whether the innermost transform of torch.func that is active is jvp."""
    interpreter = pyfunctorch.retrieve_current_functorch_interpreter()
    return interpreter.key() == torch._C._functorch.TransformType.Jvp


def ranks(op: str, dims: tuple[int, ...], form: str, **tensors: Any) -> None:
    """Refuses tensors whose dimensions are not `dims` in number, in the words of the C entries:
    the shapes of results are made of theirs, before such an entry sees them."""
    for name, tensor in tensors.items():
        if tensor.dim() not in dims:
            raise ValueError(f"{op}: {name} must have {form}, got {list(tensor.shape)}")


def is_known(condition: Any) -> bool:
    """Returns whether something holds; not if symbols decide it, which may stand for anything."""
    return isinstance(condition, bool) and condition


def write_to(operator: Any, *inputs: Any, out: Any, **options: Any) -> None:
    """Calls an operator that writes to `out`. PyTorch's compiler refuses arguments of this name
    which have gaps, as its own operators may give them another layout; a copy takes the place of
    one. It holds what was there, since not every call writes all rows."""
    has_gaps = torch.compiler.is_compiling() and out is not None and not out.is_contiguous()
    room = out.contiguous() if has_gaps else out
    operator(*inputs, **options, out=room)
    if has_gaps:
        out.copy_(room)


def refuse(op: str, **values: Any) -> None:
    """Raises TypeError for arguments that operators cannot take."""
    for name, value in values.items():
        if value is not None:
            raise TypeError(
                f"{op}: {name} cannot be traced, because an operator of PyTorch takes tensors and "
                "numbers only; call it outside of torch.compile, under torch.compiler.disable"
            )


def dtype_of(op: str, dtype: Any) -> torch.dtype:
    """Returns the torch.dtype for a dtype of any framework or its name."""
    # numpy.float16 and ml_dtypes.bfloat16 are types; dtype objects have a name; torch's print it.
    attribute = "__name__" if isinstance(dtype, type) else "name"
    text = dtype if isinstance(dtype, str) else str(getattr(dtype, attribute, dtype))
    text = text.removeprefix("torch.")
    name = _SHORT_DTYPES.get(text, text)
    if name not in _DTYPES:
        raise TypeError(
            f"{op}: out_dtype must be a dtype that Kiln computes with, or its name, such as "
            f'"float16", "bfloat16" or "float32", got {dtype!r}'
        )
    return getattr(torch, name)


def one_flag(op: str, name: str, value: Any) -> Any:
    """Returns a flag, which may be a tensor of flags where nothing is traced."""
    if isinstance(value, torch.Tensor):
        raise TypeError(
            f"{op}: {name} must be True or False where PyTorch traces, got a tensor; call it "
            "outside of torch.compile, under torch.compiler.disable"
        )
    return flag(op, name, value)


def pdl_name(op: str, pdl: Any) -> str:
    """Returns the word that operators take for pdl."""
    if isinstance(pdl, bool):
        return "on" if pdl else "off"
    if isinstance(pdl, str):
        return pdl
    raise ValueError(f'{op}: pdl must be False, True or "weights", got {pdl!r}')


def window_numbers(op: str, window: Any) -> list[Any]:
    """Returns a window as the list that the schemas need."""
    is_pair = isinstance(window, (tuple, list)) and len(window) == 2
    if not is_pair or not all(is_integer(end) for end in window):
        raise TypeError(
            f"{op}: window must be a pair (left, right) of integers, -1 = open, got {window!r}"
        )
    return list(window)


def tile_numbers(op: str, config: Any) -> list[Any]:
    """Returns a row of the config table as the numbers of its dict."""
    if not isinstance(config, dict):
        return list(config)
    unknown = [key for key in config if key not in _TILE_KEYS]
    missing = [key for key in _TILE_KEYS[:4] if key not in config]
    if unknown or missing:
        raise ValueError(
            f"{op}: config must have {', '.join(_TILE_KEYS[:4])} and may have cluster and "
            f"splits; unknown: {unknown}, missing: {missing}"
        )
    return [config.get(key, 0) for key in _TILE_KEYS]


def default_dtype(inputs: torch.dtype, asked: torch.dtype | None) -> torch.dtype:
    """The dtype of a new output; 8-bit floats can only be inputs."""
    if asked is not None:
        return asked
    eight_bits = inputs in (torch.float8_e4m3fn, torch.float8_e5m2)
    return torch.bfloat16 if eight_bits else inputs
