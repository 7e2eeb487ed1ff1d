"""Structural similarity of two pictures (Wang et al. 2004), as the benchmark measures it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_WINDOW = 7
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_MAX_SIDE = 4096

Plane = NDArray[np.float64]


def similarity(one: Image.Image, other: Image.Image) -> float:
    """Mean structural similarity in [-1, 1] of two pictures in grey, 1 for equal ones.

    Both are resized to the greater width and height of the two. Windows are 7 x 7 without weights, covariances
    are those of a sample, borders are left out.
    """
    size = tuple(min(_MAX_SIDE, max(a, b, _WINDOW)) for a, b in zip(one.size, other.size, strict=True))
    x, y = (_grey(picture, (size[0], size[1])) for picture in (one, other))
    mean_x, mean_y = _mean(x), _mean(y)
    unbiased = _WINDOW**2 / (_WINDOW**2 - 1)
    var_x = unbiased * (_mean(x * x) - mean_x * mean_x)
    var_y = unbiased * (_mean(y * y) - mean_y * mean_y)
    covariance = unbiased * (_mean(x * y) - mean_x * mean_y)
    likeness = (2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)
    return float((likeness / ((mean_x**2 + mean_y**2 + _C1) * (var_x + var_y + _C2))).mean())


def _grey(picture: Image.Image, size: tuple[int, int]) -> Plane:
    resized = picture.resize(size, Image.Resampling.LANCZOS).convert("L")
    return np.asarray(resized, dtype=np.float64)


def _mean(plane: Plane) -> Plane:
    """Means of all 7 x 7 windows inside the plane, by running sums; (h, w) becomes (h - 6, w - 6)."""
    for axis in (0, 1):
        rows = np.moveaxis(plane, axis, 0)
        total = np.cumsum(np.concatenate([np.zeros_like(rows[:1]), rows]), axis=0)
        plane = np.moveaxis((total[_WINDOW:] - total[:-_WINDOW]) / _WINDOW, 0, axis)
    return plane
