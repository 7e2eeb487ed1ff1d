"""`smollm2-135m-web`: an adapter that makes SmolLM2-135M-Instruct a web agent. Its card is README.md in this folder."""

from pathlib import Path

from agentkv.models import NamedAdapter

ADAPTER = NamedAdapter(
    Path(__file__).parent, summary="web agent: smollm2-135m with an adapter taught on the embedded sites"
)
