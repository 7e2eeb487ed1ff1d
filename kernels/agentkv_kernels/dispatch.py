"""Who computes an op: its torch reference or a kernel. The environment variable AGENTKV_KERNELS says.

``auto`` (the default): Triton on an NVIDIA GPU; elsewhere the reference, and on the CPU C++ kernels for the attention
of single queries and products of few rows. ``reference``: always. ``triton``: wherever it can run, which is on a GPU,
or anywhere in Triton's interpreter (TRITON_INTERPRET=1). The choice is logged once, and so is every reason for which a
call falls back.
"""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from importlib.util import find_spec

import torch

VARIABLE = "AGENTKV_KERNELS"
CHOICES = ("auto", "reference", "triton")
_logger = logging.getLogger("agentkv_kernels")


class SettingError(ValueError):
    """An environment variable says what nobody understands."""


def uses_triton(device: torch.device) -> bool:
    """Whether ops on tensors of this device run as Triton kernels.

    Raises:
        SettingError: AGENTKV_KERNELS is none of the choices.
    """
    return _choose(os.environ.get(VARIABLE, "auto"), device.type, os.environ.get("TRITON_INTERPRET") == "1")


def uses_native(device: torch.device) -> bool:
    """Whether ops on tensors of this device run in C++ where they can; of an unknown choice, no."""
    return device.type == "cpu" and os.environ.get(VARIABLE, "auto") == "auto"


@lru_cache(maxsize=32)
def _choose(setting: str, device: str, interpreted: bool) -> bool:
    if setting not in CHOICES:
        raise SettingError(f"{VARIABLE}={setting!r}: it is one of {', '.join(CHOICES)}")
    on_gpu = device == "cuda" and torch.version.cuda is not None
    lacking = None
    if not (on_gpu or (interpreted and setting == "triton")):
        lacking = f"the device {device!r} cannot run it"
    elif find_spec("triton") is None:
        lacking = "it is not installed: pip install 'agentkv[gpu]'"
    use = setting != "reference" and lacking is None
    if lacking is not None and (setting == "triton" or (setting == "auto" and on_gpu)):
        _logger.warning("kernels on %s: the torch reference in place of Triton, %s", device, lacking)
    else:
        _logger.info("kernels on %s: %s (%s=%s)", device, "Triton" if use else "torch reference", VARIABLE, setting)
    return use


@lru_cache(maxsize=64)
def warn_once(op: str, reason: str) -> None:
    """Say that an op falls back to the reference; the same thing once."""
    _logger.warning("%s: the torch reference in place of Triton, which does not support %s", op, reason)
