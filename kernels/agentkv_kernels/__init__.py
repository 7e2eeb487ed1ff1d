"""Kernels of agentkv: tensors in, tensors out. Each op has a readable torch reference, which is also its oracle."""

from agentkv_kernels.attention import PagedKV, paged_mixed_attention
from agentkv_kernels.confidence import ConfidenceTerms, confidence_terms
from agentkv_kernels.quantize import dequantize_int8, quantize_int8

__all__ = [
    "ConfidenceTerms",
    "PagedKV",
    "confidence_terms",
    "dequantize_int8",
    "paged_mixed_attention",
    "quantize_int8",
]
