"""Running a model on pages: loading, sessions, prefill and decode, sampling, constraints."""

from agentkv.engine.constraints import GrammarConstraint
from agentkv.engine.engine import Engine
from agentkv.engine.reply import Constraint, TokenEvent
from agentkv.engine.sampling import SamplingParams
from agentkv.engine.session import Session, SessionStats, Timings

__all__ = [
    "Constraint",
    "Engine",
    "GrammarConstraint",
    "SamplingParams",
    "Session",
    "SessionStats",
    "Timings",
    "TokenEvent",
]
