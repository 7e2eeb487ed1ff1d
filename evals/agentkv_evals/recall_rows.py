"""What `agentkv bench recall` decided, on disk: the same command goes on where it was interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from agentkv_evals import files
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import Arm


@dataclass(frozen=True)
class Decision:
    """How a case went under one arm.

    Attributes:
        nll: negative log-likelihood of the whole action, in nats.
        tokens: of the action.
        right: whether every token of it was the likeliest, no grammar helping.
        kv_bytes: the most bytes ever resident, measured.
    """

    policy: str
    budget: str | None
    task_id: str
    family: str
    kind: str
    distance: int
    nll: float
    tokens: int
    right: bool
    kv_bytes: int


class DecisionFile:
    """Decisions on disk: read once, appended to as they are made.

    Args:
        path: None keeps nothing.
        settings: identifies all that decides a decision but policy and budget.
        options: by policy, what identifies its options, gates included.

    Raises EvalError for a file that holds something else, which is left as it is.
    """

    def __init__(self, path: Path | None, settings: str, options: Mapping[str, str]):
        self._path, self._settings, self._options = path, settings, options
        self._known: dict[tuple[str, str | None], dict[str, Decision]] = {}
        if path is None or not path.exists():
            return
        rows = files.read_lines(path)
        if any(row.get("settings") != settings for row in rows) or (not rows and path.stat().st_size):
            raise EvalError(f"{path} holds something else than decisions of these settings; name another file")
        for row in rows:
            if row.get("options") != options.get(row["policy"], row.get("options")):
                raise EvalError(f"{path} holds decisions of {row['policy']} with other options; name another file")
        files.drop_torn_line(path)
        for row in rows:
            decision = Decision(**{name: value for name, value in row.items() if name not in ("settings", "options")})
            self._known.setdefault((decision.policy, decision.budget), {})[decision.task_id] = decision

    def known(self, arm: Arm) -> Mapping[str, Decision]:
        """What was measured before, by task."""
        return self._known.get((arm.policy, arm.budget), {})

    def add(self, decision: Decision) -> None:
        """Put it on disk, unless it came from there."""
        own = self._known.setdefault((decision.policy, decision.budget), {})
        if decision.task_id not in own and self._path is not None:
            beside = {"settings": self._settings, "options": self._options[decision.policy]}
            files.append_line(self._path, {**asdict(decision), **beside})
        own[decision.task_id] = decision


def check_path(path: Path | None) -> None:
    """Raises EvalError if no rows could be written there."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise EvalError(f"--rows {path}: " + ("that is a folder" if path.is_dir() else f"no folder {path.parent}"))
