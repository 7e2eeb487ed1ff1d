import json

import numpy as np
import pytest
import torch
from model_fakes import HIDDEN, KV_HEADS, LAYERS, TEMPLATE, write_gguf
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentkv.errors import ModelError
from agentkv.models.gguf_convert import convert_gguf


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    values = write_gguf(folder / "tiny.gguf")
    target = folder / "model"
    target.mkdir()
    convert_gguf(folder / "tiny.gguf", target)
    return folder, target, values


def test_transformers_loads_the_folder_with_every_weight(converted):
    _, target, _ = converted
    model, report = AutoModelForCausalLM.from_pretrained(target, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.dtype == torch.bfloat16
    assert model.config.rope_parameters["rope_theta"] == 10000.0
    assert model.generation_config.eos_token_id == 2
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_values_survive_dequantising_and_rounding(converted):
    _, target, values = converted
    weights = load_file(target / "model.safetensors")
    got = weights["model.layers.1.mlp.up_proj.weight"].float().numpy()
    assert np.abs(got - values["blk.1.ffn_up"]).max() < 0.03
    assert len(weights) == 2 + 9 * LAYERS


def test_query_and_key_rows_go_back_to_half_split_order(converted):
    """Row 2i of a GGUF head is coordinate i, row 2i + 1 is coordinate i + head_dim / 2."""
    _, target, values = converted
    weights = load_file(target / "model.safetensors")
    got = weights["model.layers.0.self_attn.k_proj.weight"].float().numpy()
    stored = values["blk.0.attn_k"].reshape(KV_HEADS, -1, HIDDEN)
    expected = np.concatenate([stored[:, 0::2], stored[:, 1::2]], axis=1).reshape(-1, HIDDEN)
    assert np.abs(got - expected).max() < 0.03
    assert np.abs(got - values["blk.0.attn_k"]).max() > 0.5


def test_tokenizer_splits_digits_knows_its_special_tokens_and_its_template(converted):
    _, target, _ = converted
    tokenizer = AutoTokenizer.from_pretrained(target)
    ids = tokenizer("hello 12<|im_end|>")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["hell", "o", "Ġ", "1", "2", "<|im_end|>"]
    assert tokenizer.decode(ids) == "hello 12<|im_end|>"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert tokenizer.chat_template == TEMPLATE


def test_config_is_plain_json_without_rounding_noise(converted):
    _, target, _ = converted
    assert json.loads((target / "config.json").read_text())["rms_norm_eps"] == 1e-5


def test_other_architectures_and_other_files_are_refused(tmp_path):
    write_gguf(tmp_path / "odd.gguf", architecture="gpt2")
    with pytest.raises(ModelError, match=r"only .*llama"):
        convert_gguf(tmp_path / "odd.gguf", tmp_path)
    (tmp_path / "noise.gguf").write_bytes(b"not a model at all" * 10)
    with pytest.raises(ModelError, match="not a readable GGUF"):
        convert_gguf(tmp_path / "noise.gguf", tmp_path)
