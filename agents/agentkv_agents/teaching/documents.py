"""Demonstrations as documents, for training that is not of the agent itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from agentkv.engine.loading import eos_token_ids
from agentkv.train.documents import Document
from agentkv.train.errors import TrainError
from agentkv_agents.prompting import Prompting
from agentkv_agents.teaching.leaks import check_leaks, test_text
from agentkv_agents.teaching.render import Renderer
from agentkv_agents.teaching.traces import read_traces


def trace_documents(
    paths: Sequence[Path], prompting: Prompting, tokenizer: Any, model: PreTrainedModel
) -> dict[str, list[Document]]:
    """Files of demonstrations as one kind of documents, rendered for a model.

    Args:
        prompting: how an agent asks that model.

    Raises:
        TrainError: a file cannot be read, holds something of the tests, or the model cannot be an append-only agent.
    """
    traces = read_traces(tuple(paths))
    check_leaks(traces, test_text())
    renderer = Renderer(tokenizer, ending_token(eos_token_ids(model, tokenizer), tokenizer), prompting=prompting)
    return {"traces": [renderer.document(trace) for trace in traces]}


def ending_token(ends: Collection[int], tokenizer: Any) -> int:
    """Which of the tokens that end a model's replies its tokenizer writes. Raises TrainError: there is none."""
    eos: int | None = tokenizer.eos_token_id
    if eos is None or eos not in ends:
        raise TrainError("the tokenizer has no end-of-sequence token that ends replies; train another model")
    return eos
