"""The embedded model on pages, against transformers' own cache and generate."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentkv import policies
from agentkv.engine import Engine, SamplingParams
from agentkv.models import resolve_model
from tests.runtime_helpers import logits_after

pytestmark = pytest.mark.model
NAME = "smollm2-135m"
PROMPT = "List three things that a person needs in order to bake bread, and say why each of them matters."


def prompt_ids(tokenizer) -> list[int]:
    message = [{"role": "user", "content": PROMPT}]
    return tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)["input_ids"]


def reference(dtype: torch.dtype):
    return AutoModelForCausalLM.from_pretrained(resolve_model(NAME), dtype=dtype).eval()


@pytest.mark.parametrize(
    "names", [("full", "conf-kv", "arkv", "surprise"), pytest.param(policies.names(), marks=pytest.mark.full)]
)
def test_float32_equals_generate_token_for_token(names: Sequence[str]) -> None:
    engine = Engine.load(NAME, dtype="float32", kv_pool="256MiB")
    ids = prompt_ids(engine.tokenizer)
    expected = reference(torch.float32).generate(torch.tensor([ids]), max_new_tokens=32, do_sample=False)
    for policy in names:
        session = engine.open_session(policy, "64MiB")
        got = [t for event in engine.generate(session, ids, SamplingParams(max_tokens=32)) for t in event.token_ids]
        assert got == expected[0, len(ids) :].tolist(), policy
        session.close()
    assert engine.arena.used_pages == 0


@pytest.mark.parametrize(("weights", "times", "most"), [("model", 1.5, 0.003), ("int8", 8.0, 0.01)])
def test_bfloat16_logits_are_as_exact_as_those_of_transformers(weights: str, times: float, most: float) -> None:
    """Stated tolerance: over a prompt and decoded tokens, the mean KL divergence from float32 is at most 1.5 times
    that of transformers in bfloat16, and below 0.003; with int8 weights 8 times, and below 0.01."""
    engine = Engine.load(NAME, dtype="bfloat16", kv_pool="256MiB", weights=weights)
    prompt = prompt_ids(engine.tokenizer)
    text = engine.tokenizer(" First, flour: it is the body of the bread. Second, water and yeast, which make it rise.")
    ids = prompt + text["input_ids"]
    with torch.no_grad():
        exact, theirs = (
            reference(dtype)(torch.tensor([ids])).logits[0, len(prompt) - 1 :].float().log_softmax(-1)
            for dtype in (torch.float32, torch.bfloat16)
        )
    session = engine.open_session()
    turns = [prompt, *([token] for token in ids[len(prompt) :])]
    ours = torch.stack([logits_after(engine, session, turn).float() for turn in turns]).log_softmax(-1)
    our_kl, their_kl = ((exact.exp() * (exact - other)).sum(-1).mean() for other in (ours, theirs))
    assert float(our_kl) <= times * float(their_kl)
    assert float(our_kl) < most


@pytest.mark.parametrize("names", [("conf-kv",), pytest.param(("h2o", "streaming-llm"), marks=pytest.mark.full)])
def test_a_long_session_stays_inside_its_budget(names: Sequence[str]) -> None:
    """Text of 2,000 tokens through 8 MiB: measured peak below the cap, and still a sane next token."""
    engine = Engine.load(NAME, dtype="bfloat16", kv_pool="256MiB")
    ids = (engine.tokenizer("The lighthouse keeper counted the ships again. " * 250)["input_ids"])[:2000]
    for policy in names:
        session = engine.open_session(policy, "8MiB")
        logits = logits_after(engine, session, ids)
        stats = session.stats
        assert stats.resident_bytes <= stats.peak_bytes <= stats.max_bytes <= 8 * 2**20
        assert stats.evicted_tokens > 1000
        assert bool(logits.isfinite().all())
        assert (stats.quantized_tokens > 0) == (policy == "conf-kv")
        session.close()
