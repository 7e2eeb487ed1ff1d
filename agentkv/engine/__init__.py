"""Running a model on pages: loading, sessions, prefill and decode, sampling, constraints."""

from agentkv.engine.checkpoints import Checkpoint, Rewind
from agentkv.engine.constraints import GrammarConstraint
from agentkv.engine.engine import Engine
from agentkv.engine.explain import ExplainedSpan, Explanation, TokenState
from agentkv.engine.reply import Constraint, TokenEvent
from agentkv.engine.sampling import SamplingParams
from agentkv.engine.session import Session, SessionStats, Timings

__all__ = [
    "Checkpoint",
    "Constraint",
    "Engine",
    "ExplainedSpan",
    "Explanation",
    "GrammarConstraint",
    "Rewind",
    "SamplingParams",
    "Session",
    "SessionStats",
    "Timings",
    "TokenEvent",
    "TokenState",
]
