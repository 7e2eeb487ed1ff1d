"""Pooling follows the order of the tokens, whatever the order of the slots."""

from __future__ import annotations

import pytest
import torch

from agentkv.policies.pooling import pooled


def by_hand(scores: list[float], tokens: list[int], valid: list[bool], kernel: int, mode: str) -> list[float]:
    order = sorted((slot for slot in range(len(tokens)) if valid[slot]), key=lambda slot: tokens[slot])
    result = [0.0] * len(tokens)
    for place, slot in enumerate(order):
        near = [scores[other] for other in order[max(0, place - kernel // 2) : place + kernel // 2 + 1]]
        result[slot] = sum(near) / kernel if mode == "avg" else max(near)
    return result


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("kernel", [1, 5, 7])
def test_pooling_is_over_neighbours_in_token_order(mode: str, kernel: int) -> None:
    generator = torch.Generator().manual_seed(kernel)
    scores = torch.rand(2, 3, 20, generator=generator)
    tokens = torch.stack([torch.randperm(90, generator=generator)[:20] for _ in range(6)]).view(2, 3, 20).int()
    valid = torch.rand(2, 3, 20, generator=generator) < 0.8
    got = pooled(scores, tokens, valid, kernel, mode)
    for layer in range(2):
        for head in range(3):
            at = layer, head
            expected = by_hand(scores[at].tolist(), tokens[at].tolist(), valid[at].tolist(), kernel, mode)
            torch.testing.assert_close(got[at], torch.tensor(expected))


def test_one_order_serves_all_heads_of_a_group() -> None:
    scores = torch.rand(2, 4, 9)
    tokens = torch.randperm(9).int()
    got = pooled(scores, tokens, tokens >= 0, 3)
    torch.testing.assert_close(got[1, 2], pooled(scores[1:2, 2], tokens, tokens >= 0, 3)[0])
