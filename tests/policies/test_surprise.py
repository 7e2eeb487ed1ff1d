"""surprise: whole segments by the mean −log p of their tokens, against a plain computation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from agentkv import policies
from agentkv.cache.formats import KVFormat
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError
from agentkv.policies.scorers import Noise, SegmentMean
from agentkv.policies.surprise import SegmentSurprise
from tests.runtime_helpers import causal_logits, logits_after, random_ids, tiny_engine, tiny_model


def segments_of(ids: list[int]) -> list[list[int]]:
    """Indices of the tokens of each segment; a token from 90 on ends one."""
    segments: list[list[int]] = [[]]
    for index, token in enumerate(ids):
        segments[-1].append(index)
        if token >= 90:
            segments.append([])
    return [segment for segment in segments if segment]


def ranked(ids: list[int]) -> list[int]:
    """Token indices, best first, by plain means over full attention's logits."""
    log_p = causal_logits(tiny_model("llama"), ids).log_softmax(-1)
    surprise = [0.0] + [-float(log_p[index - 1, ids[index]]) for index in range(1, len(ids))]
    means = {}
    for segment in segments_of(ids):
        means |= dict.fromkeys(segment, sum(surprise[index] for index in segment) / len(segment))
    return sorted(range(len(ids)), key=lambda index: (means[index], index), reverse=True)


def kept(session) -> list[set[int]]:
    tokens = session.cache.store.token_index
    return [set(head[head >= 0].tolist()) for head in tokens.flatten(0, 1)]


def test_the_most_surprising_segments_stay_whole() -> None:
    ids = random_ids(150, seed=11)
    assert 5 < len(segments_of(ids)) < 30
    engine = tiny_engine()
    session = engine.open_session("surprise", 40, prefill="whole", recent=10)
    logits_after(engine, session, ids)
    logits_after(engine, session, [5])
    protected = {*range(4), *range(140, 150)}
    expected = protected | set([index for index in ranked(ids) if index not in protected][: 39 - len(protected)])
    assert kept(session) == [expected | {150}] * 4
    split = [s for s in segments_of(ids) if not protected & set(s) and set(s) & expected and set(s) - expected]
    assert len(split) <= 1, "at most the segment at the edge of the budget is cut"
    for segment in split:
        assert segment[-1] in expected


def test_the_mean_is_over_the_whole_segment_kept_or_not() -> None:
    """Of two segments the one with the higher mean as read wins, even if what is left of it is dull."""
    tokens = torch.tensor([[[1, 2, 4]]], dtype=torch.int32)
    view = CacheView(
        token_index=tokens,
        mass=None,
        protected=torch.zeros(1, 1, 3, dtype=torch.bool),
        code_slots=0,
        logical_length=5,
        confidence=None,
        read_keys=lambda: torch.empty(0),
        segments=torch.tensor([0, 0, 0, 1, 1], dtype=torch.int32),
        surprise=torch.tensor([9.0, 0.1, 0.2, 2.0, 2.0]),
    )
    score = SegmentSurprise()(view)[0, 0].tolist()
    assert score[0] > score[2]
    assert score[1] > score[0], "within a segment the newer is worth more"
    dull = replace(view, surprise=torch.tensor([1.0, 0.1, 0.2, 2.0, 2.0]))
    assert SegmentSurprise()(dull)[0, 0].tolist()[2] == 4.0


def test_int8_stores_old_slots_in_fewer_bits() -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("surprise", 64, format="int8", fp_window=8)
    logits_after(engine, session, random_ids(150))
    assert session.cache.store.code_format is KVFormat.INT8_TOKEN
    assert session.stats.quantized_tokens > 20
    assert session.stats.evicted_tokens > 0
    assert policies.build("surprise").precision is None


def test_options_are_checked() -> None:
    with pytest.raises(AgentKVError, match=r"^surprise: format must be one of fp, int8, not 'int4'"):
        policies.build("surprise", format="int4")
    with pytest.raises(AgentKVError, match=r"^surprise: recent must be"):
        policies.build("surprise", recent=-1)


def test_segment_means_rank_the_newer_token_of_a_segment_higher() -> None:
    """However many tokens there are, and however close together they lie."""
    length = 4000
    tokens = torch.arange(length, dtype=torch.int32).view(1, 1, -1)
    view = CacheView(
        token_index=tokens,
        mass=None,
        protected=torch.zeros(1, 1, length, dtype=torch.bool),
        code_slots=0,
        logical_length=length,
        confidence=None,
        read_keys=lambda: torch.empty(0),
        segments=(torch.arange(length) // 20).int(),
    )
    score = SegmentMean.over(Noise(3))(view)[0, 0].view(-1, 20)
    assert bool((score.diff(dim=-1) > 0).all())
    assert score.argsort(0)[:, 0].tolist() == score.argsort(0)[:, 19].tolist()
