"""How a model's keys turn with position, found by trying it on the model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from agentkv.cache.adapter import PagedModel
from agentkv.cache.arena import PageArena
from agentkv.cache.batch import ForwardPass
from agentkv.cache.budget import Limits, shape_of
from agentkv.cache.controller import CacheController
from agentkv.cache.rotary import Rotary
from agentkv.errors import Unsupported
from agentkv.policies.base import Policy

_LENGTH_DEPENDENT = {"dynamic", "longrope"}
_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3}
"""Largest relative error of a turned key. The wrong frequencies or pairs are wrong by about the size of the key."""
_HALF_TOLERANCE = 0.05


def find_rotary(paged: PagedModel, window: int) -> tuple[Rotary | None, ...]:
    """For each layer the rotation by which its keys can be given new positions; None where they have none.

    The cache of a single token does not depend on where the token stands, but for the rotation of its keys: its
    attention has nothing else to look at. So one token is run at two positions, and for each layer the rotation is the
    one, of all the model's frequencies and both ways to pair channels, that turns its first key into its second.

    Args:
        paged: the model on pages.
        window: its positions.

    Raises:
        Unsupported: learned positions, frequencies that depend on the length, or keys that turn in another way.
    """
    kind = paged.model.config.model_type
    tables = list(_frequencies(paged.model))
    if not tables:
        raise Unsupported(f"{kind} has no rotary embedding, so stored keys cannot be given new positions")
    start, end = window // 3, window - 1
    before, after = (_keys_at(paged, position) for position in (start, end))
    tolerance = _TOLERANCE.get(paged.layout.dtype, _HALF_TOLERANCE)
    candidates = [Rotary(table, interleaved) for table in tables for interleaved in (False, True)]
    found: list[Rotary | None] = []
    for layer, (old, new) in enumerate(zip(before, after, strict=True)):
        if float(new.norm()) == 0:
            raise Unsupported(f"{kind}: the keys of layer {layer} are zero, so how they turn cannot be seen")
        errors = [_error(old, new)] + [_error(_turned(rule, old, start, end), new) for rule in candidates]
        best = min(range(len(errors)), key=errors.__getitem__)
        if errors[best] > tolerance:
            raise Unsupported(f"{kind}: the keys of layer {layer} do not turn as a rotary embedding says")
        found.append(None if best == 0 else candidates[best - 1])
    return tuple(found)


def _frequencies(model: nn.Module) -> Iterator[Tensor]:
    """Every table of rotary frequencies in the model; a model may have one per kind of layer."""
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if not name.endswith("inv_freq") or "original" in name:
                continue
            kinds = getattr(module, "rope_type", "default")
            depends = _LENGTH_DEPENDENT.intersection(kinds.values() if isinstance(kinds, dict) else [kinds])
            if depends:
                raise Unsupported(
                    f"the frequencies of its rotary embedding depend on the length ({', '.join(sorted(depends))}), so "
                    f"stored keys cannot be given new positions"
                )
            yield buffer.detach().float()


@torch.inference_mode()
def _keys_at(paged: PagedModel, position: int) -> Tensor:
    """[L, H, D] float32: keys of a session's first token, were it at this position."""
    policy, layout = Policy(name="probe", scorer=None), paged.layout
    pages = layout.layers * layout.kv_heads + 1
    arena = PageArena(layout, pages * layout.page_bytes, paged.device)
    cache = CacheController(arena, policy, Limits(shape_of(policy, layout, 1), 1, 0))
    cache.position_offset = -position
    token = paged.model.config.get_text_config().vocab_size // 2
    paged.forward(torch.tensor([[token]], device=paged.device), ForwardPass([cache.begin([token])]))
    return cache.store.read_keys()[:, :, 0]


def _turned(rule: Rotary, keys: Tensor, old: int, new: int) -> Tensor:
    if 2 * len(rule.frequencies) > keys.shape[-1]:
        return torch.full_like(keys, torch.inf)
    at = torch.zeros(keys.shape[:-1], dtype=torch.long, device=keys.device)
    return rule.turn(keys, at + old, at + new)


def _error(keys: Tensor, expected: Tensor) -> float:
    """Relative to the expected keys; both [H, D]."""
    return float((keys - expected).norm() / expected.norm())
