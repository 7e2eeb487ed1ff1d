"""How a model was taught is written beside its adapter, and read where it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.errors import ModelError
from agentkv_agents.prompting import FILE, PLAIN, Prompting, prompting_of, save_prompting


@pytest.mark.parametrize("prompting", [PLAIN, Prompting(plan=True, explain_actions=False)])
def test_what_is_written_is_read(tmp_path: Path, prompting: Prompting) -> None:
    save_prompting(tmp_path, prompting)
    assert prompting_of(str(tmp_path)) == prompting


def test_models_that_do_not_say_are_asked_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prompting_of(str(tmp_path)) == PLAIN
    assert prompting_of("someone/some-model") == PLAIN
    # A folder of the same name as an embedded model is not that model.
    (tmp_path / "smollm2-135m").mkdir()
    save_prompting(tmp_path / "smollm2-135m", Prompting(plan=True))
    monkeypatch.chdir(tmp_path)
    assert prompting_of("smollm2-135m") == PLAIN


@pytest.mark.parametrize("text", ["{", "[]", '{"plan": "yes"}', '{"dance": true}', '"plan"'])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ModelError, match=r"agent.json does not say how the model acts"):
        prompting_of(str(tmp_path))
