"""How an agent asks its model: as the model was taught, which a file beside its adapter says."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agentkv.errors import ModelError
from agentkv.models import EMBEDDED
from agentkv.models.adapters import find_adapter

FILE = "agent.json"


@dataclass(frozen=True)
class Prompting:
    """How a model is asked for actions.

    Attributes:
        plan: whether it is to write a plan first, and to go through it by number (see `agentkv_agents.plans`).
        explain_actions: whether the system message explains the actions, which a model that was taught may not need.
        follow_plan: whether a step that the plan tells is taken as it was written (see `agentkv_agents.following`).
        recall: whether the reply for a step that the plan leaves open may begin with a note of what it is about;
            that for a text to be typed does.
    """

    plan: bool = False
    explain_actions: bool = True
    follow_plan: bool = True
    recall: bool = False

    def but(self, **changes: bool | None) -> Prompting:
        """The same but for what is not None. Without a plan nothing is recalled, since no step is left open."""
        changed = replace(self, **{name: value for name, value in changes.items() if value is not None})
        return replace(changed, recall=changed.recall and changed.plan)


PLAIN = Prompting()


def prompting_of(model: str) -> Prompting:
    """How a model was taught, by its name or folder; `PLAIN` for one that does not say, as embedded and hub models.

    Raises:
        ModelError: its file is damaged.
    """
    file = (find_adapter(model) or Path(model).expanduser()) / FILE
    if model in EMBEDDED or not file.is_file():
        return PLAIN
    try:
        row = json.loads(file.read_text(encoding="utf-8"))
        prompting = Prompting(**row)
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"{file} does not say how the model acts ({error}); copy the adapter again") from error
    if not all(isinstance(value, bool) for value in asdict(prompting).values()):
        raise ModelError(f"{file} does not say how the model acts: its values must be true or false")
    return prompting


def save_prompting(folder: Path, prompting: Prompting) -> None:
    """Write it beside an adapter."""
    (folder / FILE).write_text(json.dumps(asdict(prompting), indent=2) + "\n", encoding="utf-8")
