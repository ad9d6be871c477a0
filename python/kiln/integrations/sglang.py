"""Kiln as an attention backend of SGLang.

    python -m sglang.launch_server --model-path MODEL --attention-backend kiln

SGLang finds Kiln by the entry point `kiln` of the group sglang.srt.plugins, in each of its
processes before it reads its arguments, and is told one name, kiln. Nothing else changes: models
take Kiln only if they are asked to. The backend's classes are imported when a model runner makes
one. Importing this module imports neither SGLang nor PyTorch.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["register", "unregister"]

_NAME = "kiln"


def register() -> None:
    """Tells SGLang the attention backend kiln.

    SGLang calls this in each process where Kiln is installed; a program that sets SGLANG_PLUGINS to
    other plugins calls it by itself, before it makes ServerArgs. May be called again. Raises
    ImportError if SGLang is missing, or has no registry of attention backends (0.5.23 has one).
    """
    registry, choices = _registries()
    registry.ATTENTION_BACKENDS[_NAME] = create
    for names in _names(choices):
        if _NAME not in names:
            names.append(_NAME)


def unregister() -> None:
    """Takes the name back. Nothing if Kiln was not registered, or if the name is someone else's."""
    registry, choices = _registries()
    if registry.ATTENTION_BACKENDS.get(_NAME) is not create:
        return
    del registry.ATTENTION_BACKENDS[_NAME]
    for names in _names(choices):
        if _NAME in names:
            names.remove(_NAME)


def plugin() -> None:
    """The entry point: register(), but an SGLang that Kiln does not know runs without it."""
    try:
        register()
    except Exception as error:
        log = logging.getLogger(__name__)
        log.warning("Kiln is no attention backend of this SGLang: %s", error)


def create(runner: Any) -> Any:
    """What SGLang's registry calls with a model runner. Returns its attention backend."""
    from ._sglang_backend import KilnAttnBackend

    return KilnAttnBackend(runner)


def _names(choices: Any) -> tuple[list[str], ...]:
    """The lists of names that Kiln is in: of those for --attention-backend and its like, and of
    those that --enable-deterministic-inference takes."""
    return choices.ATTENTION_BACKEND_CHOICES, choices.DETERMINISTIC_ATTENTION_BACKEND_CHOICES


def _registries() -> tuple[Any, Any]:
    """SGLang's registry of attention backends, and the lists of their names."""
    try:
        from sglang.srt.arg_groups import choices
        from sglang.srt.layers.attention import attention_registry
    except ImportError as error:
        raise ImportError(
            "kiln.integrations.sglang: SGLang's attention backends cannot be imported; pip install "
            f"'sglang>=0.5.23' ({error})"
        ) from error
    if not hasattr(attention_registry, "ATTENTION_BACKENDS"):
        raise ImportError(
            "kiln.integrations.sglang: this SGLang has no registry of attention backends; pip "
            "install 'sglang>=0.5.23'"
        )
    return attention_registry, choices
