"""Variants that no cache has seen and that change nothing: a cold key on demand."""

import uuid

from kiln import jit


def fresh_text():
    return f"logit + x * 0.0f * {int(uuid.uuid4()) % 10**8}.0f"


def fresh_variant():
    return jit.Variant("cold", params={"x": "f32"}, logits=fresh_text())
