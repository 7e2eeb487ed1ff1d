"""An adapter's folder: what it holds, what loading makes of it, and which bases it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from chat_fakes import byte_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from agentkv.engine import Engine
from agentkv.engine.merging import base_fingerprint, load_merged, merge_adapter, weights_fingerprint
from agentkv.engine.self_check import compare_with_transformers
from agentkv.errors import AgentKVError, ModelError
from agentkv.models import check_model
from agentkv.models.adapters import CONFIG, WEIGHTS, read_adapter
from agentkv.train.errors import TrainError
from agentkv.train.lora import add_lora, save_adapter
from tests.runtime_helpers import tiny_model

CPU = torch.device("cpu")
IDS = torch.tensor([[5, 9, 60, 2, 33]])


def base(seed: int = 0) -> PreTrainedModel:
    tokenizer = byte_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, eos_token_id=tokenizer.eos_token_id, initializer_range=0.2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, torch.Tensor]:
    """A base, an adapter for it, and the logits [V] of the adapted model, by peft."""
    model = base()
    model.save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    fingerprint = base_fingerprint(model)
    parameters = add_lora(model, rank=4, alpha=12, seed=1)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.copy_((torch.randn(parameter.shape, generator=generator) * 0.1).bfloat16())
        logits = model(IDS).logits[0, -1]
    save_adapter(
        tmp_path / "adapter", parameters, rank=4, alpha=12, base=str(tmp_path / "base"), fingerprint=fingerprint
    )
    return tmp_path / "base", tmp_path / "adapter", logits


def test_a_new_adapter_changes_nothing_and_trains_every_projection() -> None:
    model = base()
    with torch.no_grad():
        before = model(IDS).logits
    parameters = add_lora(model, rank=4, alpha=8, seed=0)
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, before)
    assert len(parameters) == 2 * 7 * 2
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        name for name, _ in model.named_parameters() if ".lora_" in name
    }
    assert not [name for name in parameters if "lm_head" in name or "embed" in name]


def test_a_folder_with_an_adapter_is_a_model(folders: tuple[Path, Path, torch.Tensor]) -> None:
    source, adapter, logits = folders
    check_model(adapter)
    merged, _ = load_merged(adapter, "float32", CPU)
    with torch.no_grad():
        torch.testing.assert_close(merged(IDS).logits[0, -1], logits, atol=1e-5, rtol=1e-5)
        plain, _ = load_merged(source, "float32", CPU)
        assert (plain(IDS).logits[0, -1] - logits).abs().max() > 0.01
    engine = Engine.load(str(adapter), dtype="float32", kv_pool="4MiB")
    assert engine.model_name == str(adapter)
    assert engine.fingerprint != Engine.load(str(source), dtype="float32", kv_pool="4MiB").fingerprint


def test_doctor_compares_an_adapted_model_with_itself_and_not_with_its_base(
    folders: tuple[Path, Path, torch.Tensor],
) -> None:
    source, adapter, _ = folders
    engine = Engine.load(str(adapter), dtype="float32", kv_pool="4MiB")
    assert compare_with_transformers(engine, adapter).passed
    assert not compare_with_transformers(engine, source).passed


def test_peft_reads_it_too(folders: tuple[Path, Path, torch.Tensor]) -> None:
    from peft import PeftModel

    source, adapter, logits = folders
    model = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(source), adapter)
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits[0, -1], logits, atol=1e-5, rtol=1e-5)


def test_a_base_with_other_weights_is_refused(folders: tuple[Path, Path, torch.Tensor]) -> None:
    source, adapter, _ = folders
    other = base(seed=1)
    with pytest.raises(ModelError, match=r"trained for .*base.* with other weights"):
        merge_adapter(other, read_adapter(adapter))
    other.save_pretrained(source)
    with pytest.raises(ModelError, match="use the base it was trained for"):
        Engine.load(str(adapter), dtype="float32")


def test_a_base_is_the_same_in_every_dtype_and_another_after_the_smallest_training() -> None:
    model = base().bfloat16()
    first = base_fingerprint(model)
    assert [base_fingerprint(model.to(dtype)) for dtype in (torch.float32, torch.float16, torch.float64)] == [first] * 3
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0] += 0.01
    assert base_fingerprint(model) != first


def test_what_is_merged_is_the_same_in_every_dtype_and_tells_adapters_apart(tmp_path: Path) -> None:
    """Gates are trained in float32 and used in bfloat16, where sums are rounded."""
    model = base().bfloat16()
    model.save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    fingerprint, found = base_fingerprint(model), {}
    parameters = add_lora(model.float(), rank=4, alpha=12, seed=1)
    for name, spread in (("one", 0.1), ("two", 0.11)):
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
        save_adapter(
            tmp_path / name, parameters, rank=4, alpha=12, base=str(tmp_path / "base"), fingerprint=fingerprint
        )
        merged = [load_merged(tmp_path / name, dtype, CPU)[0] for dtype in ("float32", "bfloat16", "float16")]
        found[name] = {weights_fingerprint(model) for model in merged}
        assert len(found[name]) == 1
        assert Engine.load(str(tmp_path / name), dtype="bfloat16").weights_fingerprint in found[name]
    assert found["one"] != found["two"]
    assert fingerprint not in found["one"]
    assert weights_fingerprint(base().bfloat16()) == fingerprint


@pytest.mark.parametrize("broken", [CONFIG, WEIGHTS])
def test_a_damaged_adapter_is_refused(folders: tuple[Path, Path, torch.Tensor], broken: str) -> None:
    (folders[1] / broken).write_bytes(b"\x00damaged")
    with pytest.raises(ModelError, match=r"adapter .* is incomplete or damaged .*train or copy it again"):
        check_model(folders[1])


def test_an_adapter_of_other_makers_is_refused(folders: tuple[Path, Path, torch.Tensor]) -> None:
    from safetensors.torch import load_file, save_file

    file = folders[1] / WEIGHTS
    save_file(load_file(file), file, {"format": "pt"})
    with pytest.raises(ModelError, match="does not say which weights it belongs to"):
        check_model(folders[1])


def test_what_an_adapter_holds_beside_its_products_is_refused(folders: tuple[Path, Path, torch.Tensor]) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    file = folders[1] / WEIGHTS
    with safe_open(file, framework="pt") as opened:
        about = opened.metadata()
    tensors = load_file(file)
    save_file({**tensors, "base_model.model.lm_head.weight": torch.zeros(2, 2)}, file, about)
    with pytest.raises(ModelError, match=r"holds base_model.model.lm_head.weight"):
        load_merged(folders[1], "float32", CPU)
    name = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"
    save_file({**tensors, name: tensors[name][:, :5].contiguous()}, file, about)
    with pytest.raises(ModelError, match=r"changes model.layers.0.mlp.up_proj.weight, which its base lacks"):
        load_merged(folders[1], "float32", CPU)


def test_the_base_of_an_adapter_must_exist(folders: tuple[Path, Path, torch.Tensor]) -> None:
    source, adapter, _ = folders
    source.rename(source.with_name("moved"))
    with pytest.raises(AgentKVError, match="unknown model"):
        check_model(adapter)


def test_a_model_without_linear_projections_cannot_be_trained() -> None:
    with pytest.raises(TrainError, match="is no linear layer"):
        add_lora(tiny_model("gpt2", torch.float32), 4, 8, 0)


def test_the_configuration_names_what_was_adapted(folders: tuple[Path, Path, torch.Tensor]) -> None:
    config = json.loads((folders[1] / CONFIG).read_text())
    assert config["target_modules"] == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert (config["r"], config["lora_alpha"]) == (4, 12)
