"""Kernels of agentkv: tensors in, tensors out. Each op has a readable torch reference, which is also its oracle."""

from agentkv_kernels.attention import AttentionResult, paged_mixed_attention
from agentkv_kernels.confidence import ConfidenceTerms, confidence_terms
from agentkv_kernels.formats import KVFormat
from agentkv_kernels.paged_kv import PagedKV
from agentkv_kernels.quantize import dequantize, dequantize_channel, quantize, quantize_channel

__all__ = [
    "AttentionResult",
    "ConfidenceTerms",
    "KVFormat",
    "PagedKV",
    "confidence_terms",
    "dequantize",
    "dequantize_channel",
    "paged_mixed_attention",
    "quantize",
    "quantize_channel",
]
