"""Adapters that installed packages bring under a name."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from agentkv import models
from agentkv.chat.profile import context_window
from agentkv.cli import run as cli
from agentkv.errors import ModelError, UnknownName
from agentkv.models import NamedAdapter, adapter_names, adapters, check_model, resolve_model, takes_int8_weights
from agentkv.models.adapters import CONFIG, FORMAT, VERSION, WEIGHTS


def entry(name: str, value: object, package: str = "some-package") -> tuple[EntryPoint, ...]:
    """An entry point of an installed package; an exception is what its import raises."""

    class Made(EntryPoint):
        def load(self) -> object:
            if isinstance(value, Exception):
                raise value
            return value

    return (Made(name, f"{package}:thing", adapters.ENTRY_POINT_GROUP),)


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an adapter by the name of `tiny-web`; its base is a folder too. Other names are broken."""
    base, folder = tmp_path / "base", tmp_path / "web"
    base.mkdir()
    folder.mkdir()
    (base / "config.json").write_text(json.dumps({"max_position_embeddings": 77}))
    (folder / CONFIG).write_text(json.dumps({"lora_alpha": 4, "r": 2}))
    about = {"format": FORMAT, "version": VERSION, "base": str(base), "fingerprint": "0"}
    save_file({"x": torch.zeros(1)}, folder / WEIGHTS, about)
    adapter = NamedAdapter(folder, "a tiny agent", int8_weights=True)
    entries = {
        "tiny-web": entry("tiny-web", adapter),
        "broken": entry("broken", ModuleNotFoundError("No module named 'elsewhere'")),
        "folder": entry("folder", folder),
        "gone": entry("gone", NamedAdapter(tmp_path / "gone", "was here")),
        "twice": entry("twice", adapter, "one") + entry("twice", adapter, "other"),
    }
    monkeypatch.setattr(adapters, "_entries", lambda: entries)
    return folder


def test_its_name_is_a_model(web: Path) -> None:
    assert "tiny-web" in adapter_names()
    assert resolve_model("tiny-web") == web
    assert context_window("tiny-web") == context_window(str(web)) == 77
    with pytest.raises(UnknownName, match=r"not a name \(smollm2-135m, broken, folder, gone, tiny-web, twice\)"):
        check_model("tiny-wob")


def test_it_says_whether_int8_weights_are_as_good(web: Path) -> None:
    assert takes_int8_weights("tiny-web")
    assert takes_int8_weights("smollm2-135m")
    assert not takes_int8_weights(str(web))


def test_a_base_that_is_gone_is_told(web: Path) -> None:
    (web.parent / "base" / "config.json").unlink()
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        check_model("tiny-web")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"'broken' of some-package:thing cannot be loaded \(No module named 'elsewhere'\)"),
        ("folder", r"'folder' of some-package:thing is no NamedAdapter with files; mend that package"),
        ("gone", r"'gone' of some-package:thing is no NamedAdapter with files; mend that package"),
        ("twice", r"several installed packages bring an adapter 'twice': one:thing, other:thing; remove all but one"),
    ],
)
def test_a_broken_package_is_told_where_it_is_named(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError, match=message):
        check_model(name)
    assert context_window(name) is None
    assert cli(["models", "list"]) == 0
    shown = capsys.readouterr()
    assert "tiny-web  a tiny agent" in shown.out
    assert name in shown.err


def test_it_is_listed_with_its_base(web: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = web.parent / "base"
    assert cli(["models", "list"]) == 0
    assert f"tiny-web  a tiny agent  adapter of {base}, its base in {base}" in capsys.readouterr().out
    assert cli(["models", "list", "--json"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row == {"name": "tiny-web", "pulled": None, "folder": str(web), "summary": "a tiny agent"}


def test_a_pull_of_it_is_one_of_its_base(
    web: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["models", "pull", "tiny-web"]) == 2
    assert f"the base of tiny-web is {web.parent / 'base'}, which is not fetched" in capsys.readouterr().err
    about = {"format": FORMAT, "version": VERSION, "base": "smollm2-135m", "fingerprint": "0"}
    save_file({"x": torch.zeros(1)}, web / WEIGHTS, about)
    monkeypatch.setattr(models, "pull", lambda model, force: f"pulled {model.name} {force}")
    assert cli(["models", "pull", "tiny-web"]) == 0
    assert capsys.readouterr().out == "pulled smollm2-135m False\n"


def test_embedded_models_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    (other,) = entry("smollm2-135m", NamedAdapter(Path("/nowhere"), "another"))
    monkeypatch.setattr(adapters, "entry_points", lambda group: [other])
    adapters._entries.cache_clear()
    assert adapter_names() == ()
    adapters._entries.cache_clear()
