"""Kernels in C++ for the CPU, compiled on first use; without a compiler the reference in torch does the same."""

from agentkv_kernels.native.attention import attend, available, supports
from agentkv_kernels.native.product import multiplier

__all__ = ["attend", "available", "multiplier", "supports"]
