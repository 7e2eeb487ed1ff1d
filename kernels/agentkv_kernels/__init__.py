"""Kernels of agentkv: tensors in, tensors out. Each op is a torch reference, the oracle, and a Triton kernel."""

from agentkv_kernels.attention import AttentionResult
from agentkv_kernels.confidence import ConfidenceTerms
from agentkv_kernels.dispatch import SettingError, uses_triton
from agentkv_kernels.formats import KVFormat
from agentkv_kernels.ops import (
    append_kv,
    compact,
    computed_by,
    confidence_terms,
    demote,
    demote_pages,
    ema_mass,
    paged_mixed_attention,
    promote,
    retention_capacity,
)
from agentkv_kernels.paged_kv import PagedKV
from agentkv_kernels.product import Int8Linear, OwnLinear
from agentkv_kernels.quantize import dequantize, dequantize_channel, quantize, quantize_channel

__all__ = [
    "AttentionResult",
    "ConfidenceTerms",
    "Int8Linear",
    "KVFormat",
    "OwnLinear",
    "PagedKV",
    "SettingError",
    "append_kv",
    "compact",
    "computed_by",
    "confidence_terms",
    "demote",
    "demote_pages",
    "dequantize",
    "dequantize_channel",
    "ema_mass",
    "paged_mixed_attention",
    "promote",
    "quantize",
    "quantize_channel",
    "retention_capacity",
    "uses_triton",
]
