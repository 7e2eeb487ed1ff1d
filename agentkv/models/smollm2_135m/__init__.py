"""What comes along for `smollm2-135m`: TRIM-KV's retention gates. Their card is README.md in this folder."""

from pathlib import Path

GATES = Path(__file__).parent / "gates.safetensors"
