"""What can be set about an environment; every result should be stored with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from agentkv_envs.captions import CAPTIONS, NOISE
from agentkv_envs.errors import EnvError
from agentkv_envs.types import DIALECTS, STYLES

OBSERVATIONS = ("compact", "image_som")
FORMS = ("full", "delta")
COMPACT_TOKENS, SOM_TOKENS = 350, 1500

TokenCounter = Callable[[str], int]


@dataclass(frozen=True)
class EnvOptions:
    """The options of a `WebEnv`, checked.

    Attributes:
        style: "label-first" (`link "black toaster" [27] $25`) or "vwa" (`[27] link 'black toaster' $25`).
        observation: "compact" (the page as few lines) or "image_som" (the list that goes with a marked screenshot).
        form: "full", or "delta": lines that stood in an earlier observation are referred to, not repeated.
        captions: of pictures: "none", "noisy" or "oracle" (see `agentkv_envs.captions`).
        max_tokens: no observation is longer; None: 350 for "compact", 1,500 for "image_som".
        scoring: "fixed" or "official" evaluator semantics.
        step_timeout_s: longest time for one step; a page that takes longer is hung.
        screenshots: whether one is taken after every step.

    Raises:
        EnvError: a value that an option cannot have.
    """

    style: str = "label-first"
    observation: str = "compact"
    form: str = "full"
    captions: str = "noisy"
    max_tokens: int | None = None
    scoring: str = "fixed"
    step_timeout_s: float = 20.0
    screenshots: bool = True

    def __post_init__(self) -> None:
        for name, known in (
            ("style", STYLES),
            ("observation", OBSERVATIONS),
            ("form", FORMS),
            ("captions", CAPTIONS),
            ("scoring", DIALECTS),
        ):
            if getattr(self, name) not in known:
                raise EnvError(f"unknown {name} {getattr(self, name)!r}; there are {', '.join(known)}")
        if not self.step_timeout_s > 0:
            raise EnvError(f"step_timeout_s must be positive, not {self.step_timeout_s}")
        if self.max_tokens is not None and self.max_tokens < 100:
            raise EnvError(f"max_tokens must be at least 100, not {self.max_tokens}")

    @property
    def limit(self) -> int:
        """The most tokens of an observation."""
        return self.max_tokens or (COMPACT_TOKENS if self.observation == "compact" else SOM_TOKENS)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a result file; the noise of captions is among them."""
        noise = {"caption_noise": NOISE if self.captions == "noisy" else 0.0}
        return {**asdict(self), "max_tokens": self.limit, **noise}
