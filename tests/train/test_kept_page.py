"""The page of kept tokens: the same choice as the policy's, and text that cannot leave its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch

from agentkv.policies.trim_gates import save_gates
from agentkv.train.kept_page import KeptTokens, most_retained, save_page
from tests.policies.reference import after_the_prompt, held
from tests.policies.test_trim_kv import attention_inputs, lively_gates, log_beta_by_hand


def data_of(page: Path) -> dict[str, object]:
    found = re.search(r"^const data = (.*);$", page.read_text("utf-8"), re.MULTILINE)
    assert found
    return json.loads(found[1])


def test_it_shows_what_the_policy_keeps(tmp_path: Path) -> None:
    save_gates(lively_gates(), tmp_path / "gates.safetensors")
    tokens = 90
    ids, session = after_the_prompt("trim-kv", 60, tokens, gates=str(tmp_path / "gates.safetensors"), block=20)
    kept = most_retained(log_beta_by_hand(lively_gates(), attention_inputs(ids[:tokens])).float(), 40)
    for layer in range(kept.shape[0]):
        for head in range(kept.shape[1]):
            # The policy also has the token that came after its decision.
            assert set(kept[layer, head].nonzero().flatten().tolist()) == held(session, layer, head) - {tokens}


def test_a_page_holds_every_token_once_and_ends_where_it_should(tmp_path: Path) -> None:
    tokens = ["a", "<!--<script></script><b>", "\n", '"', "é"]
    kept = torch.tensor([[[1, 0, 1, 0, 0], [0, 1, 0, 0, 0]]], dtype=torch.bool)
    save_page(tmp_path / "kept.html", [KeptTokens("text: x", tokens, kept)], "two heads")
    assert data_of(tmp_path / "kept.html") == {
        "about": "two heads",
        "documents": [{"name": "text: x", "tokens": tokens, "kept": [["10100", "01000"]]}],
    }
    assert (tmp_path / "kept.html").read_text("utf-8").count("</script>") == 1


def test_fewer_tokens_than_a_head_may_keep_all_stay() -> None:
    assert bool(most_retained(torch.full((2, 3, 5), -0.1), 9).all())
