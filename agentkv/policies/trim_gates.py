"""Retention gates of TRIM-KV (arXiv 2512.03324) and their files. A gate says how fast a token may be forgotten."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from agentkv.errors import GatesFileError
from agentkv.policies.rules import ModelFacts

FORMAT = "agentkv-trim-gates"
VERSION = "1"
WIDTH = 512
"""Hidden units of a gate, as in the paper's models."""
BIAS = 18.0
"""Where training begins: β = σ(18), nothing is forgotten."""
_WEIGHT_SPREAD = 0.02
_PARTS = ("w1", "b1", "w2", "b2")
_KEY = re.compile(r"layers\.(\d+)\.(w1|b1|w2|b2)")


@dataclass(frozen=True, eq=False)
class Gates:
    """One gate per layer, for all of its KV heads: log β = log σ(W₂ · SiLU(W₁ x + b₁) + b₂).

    All tensors are float32: near 18 a bfloat16 has steps of 0.125, which would turn most of the order into ties.

    Attributes:
        w1, b1: [L, width, hidden], [L, width].
        w2, b2: [L, H, width], [L, H].
        fingerprint: of the weights they were trained for, if known; see
            :func:`agentkv.engine.merging.weights_fingerprint`.
        digest: sha256 of the file they come from, "" if they come from none.
        source: where they come from, for messages.
    """

    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor
    fingerprint: str | None = None
    digest: str = ""
    source: str = "the gates"

    def log_beta(self, layer: int, hidden: Tensor) -> Tensor:
        """Input of the attention layer [n, hidden] (normalised, as its projections see it) to log β [H, n] float32."""
        inner = functional.silu(functional.linear(hidden.float(), self.w1[layer], self.b1[layer]))
        return functional.logsigmoid(functional.linear(inner, self.w2[layer], self.b2[layer])).T

    def check(self, model: ModelFacts) -> None:
        """Raises GatesFileError if they are of another shape than the model, or were trained for another one."""
        have = self.w1.shape[0], self.w1.shape[2], self.w2.shape[1]
        want = model.layers, model.hidden_size, model.kv_heads
        if have != want:
            raise GatesFileError(
                f"{self.source} is for a model of (layers, hidden size, KV heads) {have}, this one has {want}; "
                "use gates trained for this model"
            )
        if self.fingerprint is not None and self.fingerprint != model.fingerprint():
            raise GatesFileError(
                f"{self.source} was trained for a model of this shape with other weights; "
                "use gates trained for this model"
            )


@lru_cache(maxsize=4)
def random_gates(
    layers: int,
    hidden_size: int,
    kv_heads: int,
    seed: int = 0,
    device: torch.device | None = None,
    width: int = WIDTH,
    bias: float = BIAS,
) -> Gates:
    """Untrained gates as training begins with them: weights N(0, 0.02²), biases 0, the last ones ``bias``."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator) * _WEIGHT_SPREAD).to(device)

    return Gates(
        w1=draw(layers, width, hidden_size),
        b1=torch.zeros(layers, width, device=device),
        w2=draw(layers, kv_heads, width),
        b2=torch.full((layers, kv_heads), bias, device=device),
        source="the random gates",
    )


def save_gates(gates: Gates, path: str | Path) -> None:
    """Write gates to a safetensors file: ``layers.{i}.{w1,b1,w2,b2}`` and, in its metadata, format and fingerprint.

    A tensor that bfloat16 can say without loss is written in it.

    Raises GatesFileError if the file cannot be written.
    """
    tensors = {
        f"layers.{layer}.{part}": _in_bfloat16_if_exact(getattr(gates, part)[layer].detach().cpu().contiguous())
        for layer in range(gates.w1.shape[0])
        for part in _PARTS
    }
    metadata = {"format": FORMAT, "version": VERSION}
    if gates.fingerprint is not None:
        metadata["fingerprint"] = gates.fingerprint
    try:
        save_file(tensors, path, metadata)
    except (OSError, SafetensorError) as error:
        raise GatesFileError(f"cannot write the gates file {path}: {error}") from error


def _in_bfloat16_if_exact(tensor: Tensor) -> Tensor:
    half = tensor.bfloat16()
    return half if torch.equal(half.float(), tensor) else tensor


def load_gates(path: str | Path, device: torch.device | None = None) -> Gates:
    """Gates from a file written by :func:`save_gates`. The same file is read once for all sessions.

    Raises GatesFileError: no such file, not one of gates, incomplete, of uneven shapes, or with numbers not finite.
    """
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError as error:
        raise GatesFileError(f"there is no gates file {path}") from error
    return _load(str(path), changed, device)


def trained_for(path: str | Path) -> str | None:
    """The fingerprint of the weights that a file's gates were trained for, if it says. Raises GatesFileError."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("fingerprint")
    except (OSError, SafetensorError) as error:
        raise GatesFileError(f"{path} is no whole gates file: {error}") from error


@lru_cache(maxsize=4)
def _load(path: str, changed: int, device: torch.device | None) -> Gates:
    metadata, tensors = _read(path)
    if metadata.get("format") != FORMAT:
        raise GatesFileError(f"{path} is a safetensors file, but not of gates: its format is not {FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise GatesFileError(f"{path} has version {metadata.get('version')!r}, this one reads {VERSION}")
    layers = _layers(path, tensors)
    stacked = {part: _stack(path, part, tensors, layers).to(device) for part in _PARTS}
    _check_shapes(path, stacked)
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return Gates(**stacked, fingerprint=metadata.get("fingerprint"), digest=digest, source=path)


def _read(path: str) -> tuple[Mapping[str, str], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
    except (OSError, SafetensorError) as error:
        raise GatesFileError(f"{path} is no whole gates file: {error}") from error


def _layers(path: str, tensors: Mapping[str, Tensor]) -> int:
    numbers = []
    for name in tensors:
        match = _KEY.fullmatch(name)
        if match is None:
            raise GatesFileError(f"{path} holds {name!r}, which is no part of a gate")
        numbers.append(int(match[1]))
    return 1 + max(numbers, default=0)


def _stack(path: str, part: str, tensors: Mapping[str, Tensor], layers: int) -> Tensor:
    rows = []
    for layer in range(layers):
        name = f"layers.{layer}.{part}"
        if name not in tensors:
            raise GatesFileError(f"{path} lacks {name}")
        if not bool(torch.isfinite(tensors[name]).all()):
            raise GatesFileError(f"{path}: {name} holds numbers that are not finite")
        rows.append(tensors[name].float())
    if len({row.shape for row in rows}) > 1:
        raise GatesFileError(f"{path}: {part} has not the same shape in every layer")
    return torch.stack(rows)


def _check_shapes(path: str, stacked: Mapping[str, Tensor]) -> None:
    w1, b1, w2, b2 = (stacked[part] for part in _PARTS)
    fits = w1.dim() == w2.dim() == 3 and b1.shape == w1.shape[:2] and b2.shape == w2.shape[:2]
    if not fits or w2.shape[2] != w1.shape[1]:
        shapes = ", ".join(f"{part} {tuple(stacked[part].shape[1:])}" for part in _PARTS)
        raise GatesFileError(f"{path}: shapes do not fit together ({shapes})")
