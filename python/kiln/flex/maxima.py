"""The largest scores of a call, written by a variant that changes nothing."""

from __future__ import annotations

import functools
from typing import Any

import torch

from .._variant_text import variant_of_text

_TEXT = """
struct UserVariant : kiln::VariantDefaults {
  static constexpr bool kTakesMaxima = true, kIndexesByKey = false;
  kiln::VariantTensor<float, 3> maxima;  // [batch, heads, queries]

  __device__ __forceinline__ void take_maximum(float logit, const kiln::Position& row) const {
    maxima.write(logit, row.b, row.h, row.row);
  }
};
"""


@functools.cache
def _maxima() -> Any:
    return variant_of_text("max_scores", {}, {"maxima": "f32[b, h, row]"}, _TEXT)


def with_maxima(variant: Any, query: Any) -> tuple[Any, torch.Tensor]:
    """A call's variants, and the tensor [batch, heads, len_q] that they then fill."""
    maxima = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
    if maxima.numel() == 0:
        return variant, maxima
    given = variant if isinstance(variant, list) else [] if variant is None else [variant]
    return [*given, _maxima()(maxima=maxima)], maxima
