"""KV policies, one file each. A policy decides from a read-only view; the store alone moves data."""

from agentkv.policies import (
    arkv,
    compose,
    conf_kv,
    full,
    h2o,
    keydiff,
    knorm,
    obs_window,
    pyramidkv,
    quantize_only,
    r_kv,
    random,
    snapkv,
    streaming_llm,
    surprise,
    tova,
    window,
)
from agentkv.policies.base import Policy
from agentkv.policies.registry import build, describe, names, register

__all__ = [
    "Policy",
    "arkv",
    "build",
    "compose",
    "conf_kv",
    "describe",
    "full",
    "h2o",
    "keydiff",
    "knorm",
    "names",
    "obs_window",
    "pyramidkv",
    "quantize_only",
    "r_kv",
    "random",
    "register",
    "snapkv",
    "streaming_llm",
    "surprise",
    "tova",
    "window",
]
