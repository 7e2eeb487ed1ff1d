"""How an episode can end."""

from __future__ import annotations

from enum import StrEnum

from agentkv_envs import Score


class Outcome(StrEnum):
    """`success` and `fail` are the task's own verdict. `early_stop` is a stop rule, a full context window, or a
    budget too small for what its policy must keep, and counts as a failure. `infra_error` is a browser that hung or
    crashed, a host that does not answer, a task that cannot be carried out. `unscored` is an episode that nothing here
    can judge. The success rate runs over all planned tasks, so the last two cannot raise it."""

    SUCCESS = "success"
    FAIL = "fail"
    EARLY_STOP = "early_stop"
    INFRA_ERROR = "infra_error"
    UNSCORED = "unscored"


def outcome_of(score: Score) -> Outcome:
    """The outcome of an episode that its agent ended itself."""
    if score.success is None:
        return Outcome.UNSCORED
    return Outcome.SUCCESS if score.success else Outcome.FAIL


def success_of(outcome: Outcome) -> bool | None:
    """True, False, or None where there is no verdict."""
    if outcome in (Outcome.UNSCORED, Outcome.INFRA_ERROR):
        return None
    return outcome is Outcome.SUCCESS
