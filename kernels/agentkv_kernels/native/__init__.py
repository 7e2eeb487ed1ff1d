"""Kernels in C++ for the CPU, compiled on first use; without a compiler the reference in torch does the same."""

from agentkv_kernels.native.attention import attend, available, supports

__all__ = ["attend", "available", "supports"]
