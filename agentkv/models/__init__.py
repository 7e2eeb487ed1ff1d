"""Where models come from: embedded names, local folders, hub ids."""

from agentkv.models.registry import EMBEDDED, EmbeddedModel, agentkv_home, model_folder, names
from agentkv.models.resolve import check_model, is_pulled, resolve_model
from agentkv.models.store import damage, pull

__all__ = [
    "EMBEDDED",
    "EmbeddedModel",
    "agentkv_home",
    "check_model",
    "damage",
    "is_pulled",
    "model_folder",
    "names",
    "pull",
    "resolve_model",
]
