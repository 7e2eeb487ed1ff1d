"""Where models come from: embedded names, local folders, hub ids."""

from agentkv.models.adapters import NamedAdapter, adapter_names, named_adapter
from agentkv.models.registry import EMBEDDED, EmbeddedModel, agentkv_home, model_folder, names
from agentkv.models.resolve import check_model, is_pulled, resolve_model, takes_int8_weights
from agentkv.models.store import damage, pull

__all__ = [
    "EMBEDDED",
    "EmbeddedModel",
    "NamedAdapter",
    "adapter_names",
    "agentkv_home",
    "check_model",
    "damage",
    "is_pulled",
    "model_folder",
    "named_adapter",
    "names",
    "pull",
    "resolve_model",
    "takes_int8_weights",
]
