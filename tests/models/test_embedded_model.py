"""The real embedded model in the cache folder."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentkv.models import resolve_model

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def loaded():
    folder = resolve_model("smollm2-135m")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return model, tokenizer


def test_it_answers_in_english(loaded):
    model, tokenizer = loaded
    messages = [{"role": "user", "content": "What is the capital of France? Answer briefly."}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    reply = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(reply, skip_special_tokens=True) == "The capital of France is Paris."


def test_its_shape_is_the_documented_one(loaded):
    model, tokenizer = loaded
    config = model.config
    shape = (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    assert shape == (30, 9, 3, 64)
    assert config.max_position_embeddings == 8192
    assert config.rope_parameters["rope_theta"] == 100_000
    assert len(tokenizer) == config.vocab_size == 49_152
