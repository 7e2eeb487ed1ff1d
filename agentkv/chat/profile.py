"""What LangChain may know of a model before it is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.language_models.model_profile import ModelProfile

from agentkv.errors import AgentKVError, ModelError
from agentkv.models.adapters import find_adapter, read_adapter
from agentkv.models.registry import EMBEDDED, model_folder


def model_profile(
    model: str, policy: str, budget: int | str | None, options: Mapping[str, Any], max_tokens: int
) -> ModelProfile | None:
    """The profile of a model on this disk under a policy and budget; None if it is not there. Loads nothing."""
    window = context_window(model)
    if window is None:
        return None
    profile = ModelProfile(
        name=model,
        open_weights=True,
        max_output_tokens=min(window, max_tokens),
        text_inputs=True,
        text_outputs=True,
        image_inputs=False,
        audio_inputs=False,
        video_inputs=False,
        pdf_inputs=False,
        reasoning_output=False,
        tool_calling=True,
        tool_choice=True,
        tool_call_streaming=True,
        structured_output=True,
        temperature=True,
    )
    room = window if budget is None else _room(window, policy, budget, options)
    return profile if room is None else ModelProfile(**profile, max_input_tokens=room)


def context_window(model: str) -> int | None:
    """The window by the model's config file, of an adapter by its base's, if that is on this disk."""
    try:
        if (adapter := find_adapter(model)) is not None:
            return context_window(read_adapter(adapter).base)
        folder = model_folder(model) if model in EMBEDDED else Path(model).expanduser()
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ModelError):
        return None
    window: int | None = config.get("max_position_embeddings")
    return window


def _room(window: int, policy: str, budget: int | str, options: Mapping[str, Any]) -> int | None:
    """Tokens that a session takes: the window's under a policy that evicts, those of the budget under another.

    None for a budget in bytes under such a policy: how many tokens they hold shows when the model is loaded.
    """
    from agentkv.cache.budget import Budget
    from agentkv.policies import build

    try:
        if build(policy, **options).evicts:
            return window
        wanted = Budget.parse(budget)
    except AgentKVError:  # the first call says what is wrong
        return window
    if wanted.tokens is not None:
        return min(window, wanted.tokens)
    return None if wanted.share is None else int(window * wanted.share)
