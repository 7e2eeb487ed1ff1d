"""Confidence terms against distributions whose entropy is known."""

from __future__ import annotations

import pytest
import torch

from agentkv_kernels import confidence_terms


@pytest.mark.parametrize("vocabulary", [2, 1000])
def test_confidence_terms(vocabulary: int) -> None:
    sure, unsure = torch.full((vocabulary,), -30.0), torch.zeros(vocabulary)
    sure[1] = 30.0
    terms = confidence_terms(torch.stack([sure, unsure]))
    torch.testing.assert_close(terms.normalized_entropy, torch.tensor([0.0, 1.0]), rtol=0, atol=1e-5)
    torch.testing.assert_close(terms.margin, torch.tensor([60.0, 0.0]), rtol=0, atol=1e-4)
    torch.testing.assert_close(terms.top_probability, torch.tensor([1.0, 1 / vocabulary]), rtol=0, atol=1e-5)
