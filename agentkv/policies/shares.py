"""Options that users write: counts, numbers from 0 to 1, and shares of the slots; checked in one place."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from agentkv.errors import AgentKVError

Share = int | float
"""A number of slots (int), or a share of the session's slots (float from 0 to 1)."""


def as_slots(share: Share, max_slots: int) -> int:
    """Resolve a :data:`Share` against the session's slots."""
    return round(share * max_slots) if isinstance(share, float) else share


def check_count(policy: str, name: str, value: object, least: int = 0) -> int:
    """A whole number ≥ ``least`` given by a user. Raises AgentKVError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise AgentKVError(f"{policy}: {name} must be a whole number ≥ {least}, not {value!r}")
    return value


def check_odd(policy: str, name: str, value: object) -> int:
    """An odd whole number given by a user: a slot and its neighbours. Raises AgentKVError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value % 2 == 0:
        raise AgentKVError(f"{policy}: {name} must be an odd whole number, not {value!r}")
    return value


def check_unit(policy: str, name: str, value: object, most: int = 1) -> float:
    """A number from 0 to 1, or to ``most``, given by a user. Raises AgentKVError otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        raise AgentKVError(f"{policy}: {name} must be a number from 0 to {most}, not {value!r}")
    return float(value)


def check_positive(policy: str, name: str, value: object) -> float:
    """A finite number above zero given by a user. Raises AgentKVError otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
        raise AgentKVError(f"{policy}: {name} must be a number above 0, not {value!r}")
    return float(value)


def check_choice(policy: str, name: str, value: object, choices: Sequence[str]) -> str:
    """One of some words, given by a user. Raises AgentKVError otherwise."""
    if value not in choices:
        raise AgentKVError(f"{policy}: {name} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def check_share(policy: str, name: str, value: object) -> Share:
    """A share given by a user: an int ≥ 0 or a float in [0, 1]. Raises AgentKVError otherwise."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    share = isinstance(value, float) and 0 <= value <= 1
    if not (whole or share):
        raise AgentKVError(
            f"{policy}: {name} must be a whole number of slots or a share from 0.0 to 1.0, not {value!r}"
        )
    assert isinstance(value, int | float)
    return value
