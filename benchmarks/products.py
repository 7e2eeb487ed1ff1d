"""Products of a few rows with a small model's weights: the C++ kernel beside torch's own.

    python benchmarks/products.py [--threads 1] [--rows 1 2 4 8 16 32]

Milliseconds for the products of thirty layers (the shapes of SmolLM2-135M, without its output layer), the least of many
calls, matrices in turn so that none stays in a near cache. "own" are bfloat16 weights.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from agentkv_kernels import native

_SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))
_LAYERS, _COPIES = 30, 12


def least_ms(products: list[Callable[[torch.Tensor], torch.Tensor]], x: torch.Tensor, calls: int) -> float:
    """Of one call, the matrices in turn."""
    best = float("inf")
    for call in range(calls):
        started = time.perf_counter()
        products[call % len(products)](x)
        best = min(best, time.perf_counter() - started)
    return 1e3 * best


def measured(rows: int) -> dict[str, float]:
    """Milliseconds for all layers, by who computes."""
    total = dict.fromkeys(("int8, C++", "int8, torch", "own, C++", "own, torch", "own, widened"), 0.0)
    for n, size in _SHAPES:
        x, scale = torch.randn(rows, size).bfloat16(), torch.rand(n).bfloat16()
        codes = [torch.randint(-127, 128, (n, size), dtype=torch.int8) for _ in range(_COPIES)]
        own = [(torch.randn(n, size) / size**0.5).bfloat16() for _ in range(_COPIES)]
        ways = {
            "int8, C++": [native.multiplier(w, scale, None) for w in codes],
            "int8, torch": [lambda x, w=w, s=scale: torch._weight_int8pack_mm(x, w, s) for w in codes],
            "own, C++": [native.multiplier(w, None, None) for w in own],
            "own, torch": [lambda x, w=w: functional.linear(x, w) for w in own],
            "own, widened": [lambda x, w=w: functional.linear(x.float(), w.float()).bfloat16() for w in own],
        }
        for name, products in ways.items():
            there = [product for product in products if product is not None]
            total[name] += least_ms(there, x, 300 if rows < 16 else 60) if there else float("nan")
    return {name: _LAYERS * ms for name, ms in total.items()}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for rows in options.rows:
        print(f"{rows:3} rows  " + "   ".join(f"{name} {ms:.1f}" for name, ms in measured(rows).items()), flush=True)


if __name__ == "__main__":
    main()
