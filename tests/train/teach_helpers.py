"""Demonstrations of a shop in three sentences, short enough for a tokenizer of bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentkv_agents.teaching.traces import Trace, TraceStep

CLICK, STOP = 'click "red kettle" [2]', "stop []"


def row(number: int, family: str = "shop", **changes: Any) -> dict[str, Any]:
    """A demonstration as a file has it."""
    steps = [
        {"observation": f'page: Shop {number}\nlink "red kettle" [2] ${number}', "action": CLICK, "plan_step": 1},
        {"observation": "page: red kettle", "action": STOP, "plan_step": 2},
    ]
    steps = changes.get("steps", steps)
    # Steps without numbers are of a file that knows no plans.
    numbered = all("plan_step" in step for step in steps)
    planned = {"open": ["Shop"], "plan": ['click "red kettle"', STOP]} if numbered else {}
    fields = {"task_id": f"t-{family}-{number}", "family": family, "style": "label-first", "data_seed": 0}
    return {
        **fields,
        **planned,
        "intent": f"See kettle {number} of {family}.",
        "needle": None,
        "steps": steps,
        **changes,
    }


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return file


def trace(*steps: TraceStep, intent: str = "Buy the red kettle.", name: str = "t") -> Trace:
    return Trace(name, "shop", intent, "label-first", steps)
