"""What a session says of the text it holds, against a count by hand of its slots."""

from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console

from agentkv import policies
from agentkv.engine import Engine, SamplingParams, TokenState
from tests.runtime_helpers import logits_after, random_ids, tiny_engine

OPTIONS: dict[str, dict[str, object]] = {"conf-kv": {"fp_window": 8, "recent": 4, "tight": 0.75, "threshold": 0.3}}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine(dtype=torch.float32)


@pytest.mark.parametrize("policy", policies.names())
def test_shares_are_those_of_the_slots(engine: Engine, policy: str) -> None:
    built = policies.build(policy)
    budget = max(40, built.least_slots(40) + 8) if built.evicts else None
    session = engine.open_session(policy, budget, **OPTIONS.get(policy, {}))
    list(engine.generate(session, random_ids(70), SamplingParams(max_tokens=9, min_tokens=9)))
    store, told = session.cache.store, session.explain()
    heads = 2 * 2
    for token in range(session.logical_length):
        code = int((store.token_index[..., : store.code_slots] == token).sum())
        whole = int((store.token_index[..., store.code_cap :] == token).sum())
        assert told.fp[token] == pytest.approx(whole / heads)
        assert told.quantized[token] == pytest.approx(code / heads)
        expected = TokenState.EVICTED if code + whole == 0 else TokenState.PARTLY
        if code + whole == heads:
            expected = TokenState.QUANTIZED if code else TokenState.KEPT
        (span,) = (s for s in told.spans if s.start <= token < s.end)
        assert span.state is expected
    assert told.spans[-1].state is TokenState.WAITING  # the reply's last token
    assert [(a.end, b.start) for a, b in zip(told.spans, told.spans[1:], strict=False)] == [
        (span.end, span.end) for span in told.spans[:-1]
    ]
    assert told.tokens == told.spans[-1].end == len(session.ledger)
    assert sum(told.count(state) for state in TokenState) == told.tokens
    session.close()


def test_spans_carry_roles_text_and_what_was_dropped(engine: Engine) -> None:
    session = engine.open_session()
    roles = [("system", 5), ("observation", 15)]
    ids = random_ids(20)
    list(engine.generate(session, ids, SamplingParams(max_tokens=3, min_tokens=3), roles=roles))
    session.drop_span(8, 12)
    told = engine.explain(session)
    assert [(s.start, s.end, s.state, s.role) for s in told.spans[:4]] == [
        (0, 5, TokenState.KEPT, "system"),
        (5, 8, TokenState.KEPT, "observation"),
        (8, 12, TokenState.DROPPED, "observation"),
        (12, 20, TokenState.KEPT, "observation"),
    ]
    assert "".join(span.text for span in told.spans) == engine.tokenizer.decode(session.ledger)
    assert (told.spans[2].fp, told.spans[2].dropped) == (0.0, 1.0)
    assert json.loads(told.to_json())["spans"][2]["state"] == "dropped"
    lines = told.to_text().splitlines()
    assert lines[0].startswith("policy full, 23 tokens: 18 kept, 4 dropped, 1 waiting")
    assert lines[3].split()[:4] == ["8–11", "dropped", "0%", "observation"]
    console = Console(width=200, record=True, file=None, force_terminal=True, quiet=False)
    with console.capture() as shown:
        console.print(told)
    assert "\x1b[2;9m" in shown.get(), "dropped text is struck through"
    session.close()


def test_windows_outside_the_policy_are_left_out() -> None:
    engine = tiny_engine("gemma3", torch.float32)
    session = engine.open_session()
    logits_after(engine, session, random_ids(60))
    told = session.explain()
    assert told.count(TokenState.KEPT) == 60
    assert "kept" in told.to_text()


def test_an_empty_session(engine: Engine) -> None:
    told = engine.explain(engine.open_session())
    assert (told.tokens, told.spans) == (0, ())
    assert told.to_text() == "policy full, 0 tokens: none yet"
