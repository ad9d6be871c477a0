"""Kiln as an attention backend of vLLM.

    vllm serve MODEL --attention-backend KILN

vLLM finds Kiln by the entry point `kiln` of the group vllm.general_plugins, in each of its
processes, and is told two names, KILN and CUSTOM. Nothing else changes: models take Kiln only if
they are asked to, by --attention-backend or by AttentionConfig. The names refer to classes that are
imported at their first use. Importing this module imports neither vLLM nor PyTorch.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["register", "unregister"]

_MODULE = "kiln.integrations._vllm_backend"
_PATHS = {"KILN": f"{_MODULE}.KilnAttentionBackend", "CUSTOM": f"{_MODULE}.KilnCustomBackend"}


def register() -> None:
    """Tells vLLM the backends KILN and CUSTOM, the second only if no one else has taken it.

    vLLM calls this in each process where Kiln is installed; a program that sets VLLM_PLUGINS to
    other plugins calls it by itself. May be called again. Raises ImportError if vLLM is missing, or
    has no registry that takes new names (0.33 has one).
    """
    registry = _registry()
    names = registry.AttentionBackendEnum
    if "KILN" not in names.__members__:
        registry.register_backend("KILN", _PATHS["KILN"])
    if not names.CUSTOM.is_overridden():
        registry.register_backend(names.CUSTOM, _PATHS["CUSTOM"])


def unregister() -> None:
    """Takes both names back, and leaves a CUSTOM that is someone else's. Nothing if Kiln was not
    registered."""
    names = _registry().AttentionBackendEnum
    if names.CUSTOM.is_overridden() and names.CUSTOM.get_path() == _PATHS["CUSTOM"]:
        names.CUSTOM.clear_override()
    member = names.__members__.get("KILN")
    if member is None:
        return
    member.clear_override()
    # The registry enters names by register(), and has no function that removes one.
    names._member_map_.pop("KILN")
    names._value2member_map_.pop(member.value, None)
    names._member_names_.remove("KILN")
    if "KILN" in vars(names):
        delattr(names, "KILN")


def plugin() -> None:
    """The entry point: register(), but a vLLM that Kiln does not know keeps running without it."""
    try:
        register()
    except Exception as error:
        logging.getLogger(__name__).warning("Kiln is no attention backend of this vLLM: %s", error)


def _registry() -> Any:
    """vLLM's module of attention backends."""
    try:
        from vllm.v1.attention.backends import registry
    except ImportError as error:
        raise ImportError(
            "kiln.integrations.vllm: vLLM's attention backends cannot be imported; pip install "
            f"'vllm>=0.33' ({error})"
        ) from error
    if not hasattr(getattr(registry, "AttentionBackendEnum", None), "register"):
        raise ImportError(
            "kiln.integrations.vllm: this vLLM has no registry that takes names of backends; pip "
            "install 'vllm>=0.33'"
        )
    return registry
