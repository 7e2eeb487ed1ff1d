"""`smollm2-135m-web`: an adapter that makes SmolLM2-135M-Instruct a web agent, and TRIM-KV's retention gates for both
together. The cards are README.md and GATES.md in this folder."""

from pathlib import Path

from agentkv.models import NamedAdapter

_FOLDER = Path(__file__).parent
ADAPTER = NamedAdapter(_FOLDER, summary="web agent: smollm2-135m with an adapter taught on the embedded sites")
GATES = _FOLDER / "gates.safetensors"
