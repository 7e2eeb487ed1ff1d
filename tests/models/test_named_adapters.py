"""Adapters that installed packages bring under a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from agentkv.chat.profile import context_window
from agentkv.cli import run as cli
from agentkv.errors import ModelError, UnknownName
from agentkv.models import NamedAdapter, adapter_names, adapters, check_model, named_adapter, resolve_model
from agentkv.models.adapters import CONFIG, FORMAT, VERSION, WEIGHTS


class Entry:
    """An entry point of an installed package."""

    def __init__(self, value: object):
        self._value = value

    def load(self) -> object:
        return self._value


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an adapter by the name of `tiny-web`; its base is a folder too."""
    base, folder = tmp_path / "base", tmp_path / "web"
    base.mkdir()
    folder.mkdir()
    (base / "config.json").write_text(json.dumps({"max_position_embeddings": 77}))
    (folder / CONFIG).write_text(json.dumps({"lora_alpha": 4, "r": 2}))
    about = {"format": FORMAT, "version": VERSION, "base": str(base), "fingerprint": "0"}
    save_file({"x": torch.zeros(1)}, folder / WEIGHTS, about)
    entries = {"tiny-web": Entry(NamedAdapter(folder, "a tiny agent")), "wrong": Entry(folder)}
    monkeypatch.setattr(adapters, "_entries", lambda: entries)
    return folder


def test_its_name_is_a_model(web: Path) -> None:
    assert adapter_names() == ("tiny-web", "wrong")
    assert resolve_model("tiny-web") == web
    assert context_window("tiny-web") == context_window(str(web)) == 77
    with pytest.raises(UnknownName, match=r"\(smollm2-135m, tiny-web, wrong\)"):
        check_model("tiny-wob")


def test_a_base_that_is_gone_is_told(web: Path) -> None:
    (web.parent / "base" / "config.json").unlink()
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        check_model("tiny-web")


def test_an_entry_that_is_no_adapter_is_told() -> None:
    entry = {"wrong": Entry("a folder")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapters, "_entries", lambda: entry)
        with pytest.raises(ModelError, match=r"entry point 'wrong' of agentkv.adapters is no NamedAdapter"):
            named_adapter("wrong")


def test_it_is_listed_with_its_base(
    web: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adapters, "_entries", lambda: {"tiny-web": Entry(NamedAdapter(web, "a tiny agent"))})
    assert cli(["models", "list"]) == 0
    assert f"tiny-web  a tiny agent  an adapter of {web.parent / 'base'}" in capsys.readouterr().out
    assert cli(["models", "list", "--json"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row == {"name": "tiny-web", "pulled": True, "folder": str(web), "summary": "a tiny agent"}


def test_a_pull_of_it_is_one_of_its_base(web: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["models", "pull", "tiny-web"]) == 2
    assert f"unknown model '{web.parent / 'base'}'" in capsys.readouterr().err
