"""Quantise and keep everything: int8, fp8 and int8-channel."""

from __future__ import annotations

from agentkv.cache.formats import KVFormat
from agentkv.policies.base import Policy
from agentkv.policies.precision import AgePrecision
from agentkv.policies.registry import register
from agentkv.policies.shares import Share, check_count, check_share

_FP_WINDOW, _BLOCK = 64, 16


@register("int8")
def int8(fp_window: Share = _FP_WINDOW, block: int = _BLOCK) -> Policy:
    """Keep every token, older ones in INT8 with a scale per token and head; nothing is ever dropped."""
    return _quantise_only("int8", KVFormat.INT8_TOKEN, fp_window, block)


@register("fp8")
def fp8(fp_window: Share = _FP_WINDOW, block: int = _BLOCK) -> Policy:
    """Keep every token, older ones in FP8 (e4m3) with a scale per token and head; nothing is ever dropped."""
    return _quantise_only("fp8", KVFormat.FP8_TOKEN, fp_window, block)


@register("int8-channel")
def int8_channel(fp_window: Share = _FP_WINDOW) -> Policy:
    """Keep every token, older ones in INT8 with a scale per channel of the keys; nothing is ever dropped.

    A page of codes is filled at once, so the newest slots are quantised by whole pages.
    """
    return _quantise_only("int8-channel", KVFormat.INT8_CHANNEL, fp_window, None)


def _quantise_only(name: str, fmt: KVFormat, fp_window: Share, block: int | None) -> Policy:
    """The ``fp_window`` newest slots in the model's dtype, the others quantised in groups of ``block``."""
    fp_window = check_share(name, "fp_window", fp_window)
    options: dict[str, object] = {"fp_window": fp_window}
    if block is not None:
        options["block"] = check_count(name, "block", block, least=1)
    precision = AgePrecision(fp_window, fmt, block or 1)
    return Policy(name=name, scorer=None, precision=precision, options=options)
