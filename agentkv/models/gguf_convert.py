"""One-time conversion of a Llama GGUF to the files that transformers loads in a second.

Reading the GGUF directly avoids transformers' own loader, which needs `accelerate`, takes many times longer
at every start and rebuilds the tokenizer without its digit splitting.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.errors import ModelError

if TYPE_CHECKING:
    import gguf
    import torch

# GGUF name -> transformers name, for the parts outside and inside a layer.
_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of special tokens


def convert_gguf(source: Path, target: Path) -> None:
    """Write config.json, tokenizer files and bf16 model.safetensors of the GGUF `source` into `target`.

    Raises:
        ModelError: the file is no GGUF, or its architecture or tokenizer is another than SmolLM's.
    """
    import gguf
    from safetensors.torch import save_file

    try:
        reader = gguf.GGUFReader(source)
    except (OSError, ValueError) as error:
        raise ModelError(f"{source.name} is not a readable GGUF file: {error}") from error
    fields = {name: field.contents() for name, field in reader.fields.items()}
    _check_supported(fields, source.name)
    config = _model_config(fields, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    _write_json(target / "config.json", config)
    _write_json(target / "generation_config.json", _special_ids(fields))
    _write_tokenizer(fields, target)
    tensors = dict(_convert_tensor(tensor, config) for tensor in reader.tensors)
    weights = target / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors makes it readable by its owner alone


def _check_supported(fields: dict[str, Any], name: str) -> None:
    kind = (
        fields.get("general.architecture"),
        fields.get("tokenizer.ggml.model"),
        fields.get("tokenizer.ggml.pre"),
    )
    if kind != ("llama", "gpt2", "smollm"):
        raise ModelError(f"{name} is a GGUF of kind {kind}; only ('llama', 'gpt2', 'smollm') can be converted")


def _special_ids(fields: dict[str, Any]) -> dict[str, int]:
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def _model_config(fields: dict[str, Any], tied: bool) -> dict[str, Any]:
    heads = fields["llama.attention.head_count"]
    rope_theta = fields["llama.rope.freq_base"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        # The GGUF holds a float32; its shortest decimal form is what the authors configured.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        **_special_ids(fields),
    }


def _convert_tensor(tensor: gguf.ReaderTensor, config: dict[str, Any]) -> tuple[str, torch.Tensor]:
    """Dequantise one tensor; returns its transformers name and its bf16 value."""
    import torch
    from gguf.quants import dequantize

    values = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
    if ".attn_q." in tensor.name:
        values = _split_rope_halves(values, config["num_attention_heads"])
    elif ".attn_k." in tensor.name:
        values = _split_rope_halves(values, config["num_key_value_heads"])
    return _rename(tensor.name), values.to(torch.bfloat16).contiguous()


def _split_rope_halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo GGUF's row order [heads * head_dim, hidden].

    GGUF keeps the two coordinates of a RoPE rotation side by side; transformers keeps them half a head apart.
    """
    return weight.reshape(heads, -1, 2, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)


def _rename(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_INNER[parts[2]]}.weight"
    return f"{_OUTER[parts[0]]}.weight"


def _write_tokenizer(fields: dict[str, Any], target: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(target / "tokenizer.json"))
    ids = _special_ids(fields)
    _write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[ids["bos_token_id"]],
            "eos_token": tokens[ids["eos_token_id"]],
            "pad_token": tokens[ids["pad_token_id"]],
            "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
            "model_max_length": fields["llama.context_length"],
            "clean_up_tokenization_spaces": False,
        },
    )
    (target / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
