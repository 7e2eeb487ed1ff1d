"""The model card of an adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentkv.train.checkpoint import Progress
from agentkv.train.measure import Measured
from agentkv.train.trainer import Data
from agentkv_agents.teaching.traces import Split

_CARD = """\
# A web agent for agentkv

A low-rank adapter that teaches `{model}` to act in the embedded sites of agentkv, one action per page. It belongs to
the weights with the fingerprint `{fingerprint}`; agentkv refuses it for others.

    agentkv eval --tasks vwa75 --model {folder}

## Data

{training} demonstrations of training tasks ({slips} of them with wrong steps and their repair), {tokens:,} tokens in
all when rendered. Training stopped at {seen:,} tokens ({ended}). Every demonstration was checked for intents, names and
codes of the test suite `vwa75` before training. Families held out for validation: {held_out}.

## Recipe

Behaviour cloning in the agent's own append-only conversation, loss on replies only. {more}LoRA of rank {rank} (alpha
{alpha}) on all projections, AdamW, learning rate {lr:g} with warm-up and cosine, {batch} packs of at most {length}
tokens a step, dtype `{dtype}`, seed {seed}; {hours:.1f} hours of computing.
The weights are those of step {best_step}, which had the lowest loss, the mean of the sets below.

## Results

Teacher-forced: every reply is predicted after the right ones, without the page's grammar, which helps at run time.

| validation set | before: replies right | after: replies right | whole ways right | loss |
|---|---|---|---|---|
{results}

![loss and accuracy]({picture})

## Limits

It knows the embedded sites and the label-first observation of agentkv, and nothing of other pages. Teacher-forced
figures are higher than success in the browser, where one wrong step can end a task: `agentkv eval` measures that.

## Licence

The adapter is under Apache-2.0, as agentkv is; the base model has its own licence.
"""


def write_card(
    path: Path,
    progress: Progress,
    parts: Split,
    data: Data,
    rows: Sequence[Mapping[str, Any]],
    final: Mapping[str, Measured],
    picture: str,
) -> None:
    """Write the card of a training that has ended."""
    first = {row["set"]: row for row in rows if row["kind"] == "validation" and row["step"] == 0}
    lines = [
        f"| {name} ({m.documents} tasks, {m.spans} replies) | {first[name]['span_accuracy']:.1%} "
        f"| {m.span_accuracy:.1%} | {m.document_accuracy:.1%} | {m.loss:.4f} |"
        for name, m in final.items()
    ]
    text = _CARD.format(
        **dict(progress.settings)
        | {
            "folder": path.parent,
            "training": len(parts.training),
            "slips": sum(trace.has_slips for trace in parts.training),
            "tokens": sum(len(document.ids) for document in data.training),
            "seen": progress.tokens,
            "ended": progress.ended,
            "held_out": ", ".join(f"`{name}`" for name in parts.held_out),
            "hours": progress.seconds / 3600,
            "best_step": progress.best_step,
            "results": "\n".join(lines),
            "more": _more(progress.settings),
            "picture": picture,
        }
    )
    path.write_text(text, encoding="utf-8")


def _more(settings: Mapping[str, Any]) -> str:
    """Sentences on what only some trainings do."""
    share, start = settings["notes"], settings.get("start")
    notes = f"Facts to remember were noted in {share:.0%} of the demonstrations. " if share else ""
    rename = settings.get("rename")
    names = f"Makers, people and places had other names in {rename:.0%} of the demonstrations. " if rename else ""
    plans = "The agent writes a plan first and goes through it by number. " if settings["plan"] else ""
    recall = "What was to be remembered is written down once more where it is needed. " * ("recall" in settings)
    pages = "Pages got no gradient. " if settings["replies_only"] else ""
    return plans + recall + notes + names + pages + (f"It began with the adapter `{start}`. " if start else "")
