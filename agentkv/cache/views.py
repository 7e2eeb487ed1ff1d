"""What the attention kernel is given of one or several stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.store import KVStore
from agentkv_kernels import KVFormat, PagedKV


@dataclass(frozen=True)
class JointViews:
    """Heads of G stores side by side: of every layer the heads of the first store, then those of the second, ….

    Attributes:
        layers: arguments of the attention kernel for G · H heads, one per layer.
        code_slots, fp_slots: of the layer and head that holds most.
    """

    layers: list[PagedKV]
    code_slots: int
    fp_slots: int


def joint_views(stores: Sequence[KVStore], new_tokens: int) -> JointViews:
    """Views of stores in one arena and one quantised format, the slots of the ``new_tokens`` newest included.

    Heads that hold fewer slots than others are padded with the dummy page and empty slots, and layers that hold fewer
    than others to whole pages: the matrix library compiles for every shape anew, which costs more than the product.
    All that is put together is put together for all layers at once, [L, G · H, …]; of a single store nothing is copied
    that need not be.
    """
    coded = next((store for store in stores if store.code_slots), stores[0])
    fp_used = np.concatenate([store.fp.used for store in stores], axis=1)
    code_used = np.concatenate([store.code.used for store in stores], axis=1)
    fp, code = int(fp_used.max()), int(code_used.max())
    fp_page, code_page = coded.fp.page_slots, coded.code.page_slots
    code_pages = -(-code // code_page)
    token_index = _joined([_padded_slots(store, code, fp) for store in stores], 1)
    # Padding names half-page 0, of the dummy page: what it holds is arbitrary, for keys and values alike.
    fp_index = _joined([_padded(store.fp.half_index, -(-fp // fp_page)) for store in stores], 2).contiguous()
    code_index = _joined([_padded(store.code.half_index, code_pages) for store in stores], 2).contiguous()
    scales = _joined([_padded(store.scales[..., : store.code_slots], code) for store in stores], 2)
    slot_counts = _slot_counts(code_used, fp_used, token_index.device)
    channel_scales = _joint_channel_scales(stores, code_pages)
    fp_most, code_most = _whole_pages(fp_used.max(1), fp_page), _whole_pages(code_used.max(1), code_page)
    fp_filled, code_filled = fp_used.min(1), code_used.min(1)
    # Slots that every head fills, from the first on. A single query sees its own slot too; several see one another's
    # only as far as they are older.
    visible = np.where(code_filled < code_most, code_filled, code_most + fp_filled - (new_tokens > 1) * new_tokens)

    layers = []
    counts = (array.tolist() for array in (fp_most, code_most, fp_filled, visible))
    for layer, (new, old, filled, seen) in enumerate(zip(*counts, strict=True)):
        tokens = token_index[layer, :, code - old if old == code else code : code + new]
        if 0 < old < code:
            tokens = torch.cat([token_index[layer, :, :old], tokens], dim=-1)
        old_pages = -(-old // code_page)
        layers.append(
            PagedKV(
                fp_halves=coded.fp.halves,
                fp_index=fp_index[layer, ..., : -(-new // fp_page)],
                fp_slots=new,
                code_halves=coded.code.halves,
                code_index=code_index[layer, ..., :old_pages],
                code_slots=old,
                scales=scales[layer, ..., :old],
                token_index=tokens,
                visible_slots=seen,
                fp_filled=filled,
                code_format=coded.code_format,
                channel_scales=None if channel_scales is None else channel_scales[layer, :, :old_pages],
                slot_counts=None if slot_counts is None else slot_counts[layer],
            )
        )
    return JointViews(layers, code, fp)


def _whole_pages(most: np.ndarray, page: int) -> np.ndarray:
    """[L] slots to read of each layer that holds ``most``: the same for all, or whole pages up to the largest."""
    return np.minimum(-(-most // page) * page, most.max())


def _slot_counts(code_used: np.ndarray, fp_used: np.ndarray, device: torch.device) -> Tensor | None:
    """[L, 2, G · H] int32, so that a kernel reads no padding; None where there is none."""
    if all(used.min() == used.max() for used in (code_used, fp_used)):
        return None
    return torch.from_numpy(np.stack([code_used, fp_used], axis=1).astype(np.int32)).to(device)


def _joint_channel_scales(stores: Sequence[KVStore], pages: int) -> Tensor | None:
    """[L, G · H, pages, D] float32, or None where no format has a scale per channel."""
    if not pages or all(store.code_format is not KVFormat.INT8_CHANNEL for store in stores):
        return None
    padded = [_padded(store.channel_scales.transpose(2, 3), pages) for store in stores]
    return _joined(padded, 1).transpose(2, 3).contiguous()


def _padded_slots(store: KVStore, code: int, fp: int) -> Tensor:
    """[L, H, code + fp] int32: token indices of the slots in use, −1 in padding."""
    new = _padded(store.token_index[..., store.code_cap : store.code_cap + store.fp_slots], fp, -1)
    if not code:
        return new
    return torch.cat([_padded(store.token_index[..., : store.code_slots], code, -1), new], dim=-1)


def _padded(tensor: Tensor, size: int, value: int = 0) -> Tensor:
    """With the last dimension of size ``size``."""
    lacking = size - tensor.shape[-1]
    return torch.nn.functional.pad(tensor, (0, lacking), value=value) if lacking > 0 else tensor[..., :size]


def _joined(tensors: list[Tensor], dim: int) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=dim)
