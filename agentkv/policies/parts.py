"""The parts that a recipe can name: scorers, allocators, precisions and triggers, with their parameters."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from agentkv.cache.formats import KVFormat
from agentkv.errors import AgentKVError
from agentkv.policies.allocators import Geometric, Global, Pyramid, Uniform
from agentkv.policies.arkv import OriginShare
from agentkv.policies.base import Scorer
from agentkv.policies.combined import ByRole, Mixture, clash
from agentkv.policies.precision import AgePrecision, ScorePrecision
from agentkv.policies.rarity import SegmentRarity
from agentkv.policies.registry import build
from agentkv.policies.rules import AttentionRule
from agentkv.policies.scorers import AttentionMass, MassAndRecency, Recency, Scale
from agentkv.policies.shares import (
    Share,
    check_choice,
    check_count,
    check_positive,
    check_share,
    check_unit,
)
from agentkv.policies.triggers import Block, Confidence, EachToken

Check = Callable[[str, str, object], object]
"""(where, name, value as written) to the value, or AgentKVError."""

FORMATS = {"int8": KVFormat.INT8_TOKEN, "fp8": KVFormat.FP8_TOKEN, "int8-channel": KVFormat.INT8_CHANNEL}


class Part(Protocol):
    """A kind of component."""

    @property
    def parameters(self) -> tuple[str, ...]: ...

    def make(self, where: str, given: Mapping[str, object]) -> tuple[Any, dict[str, object]]:
        """The component, and its parameters with defaults filled in; ``given`` names only parameters there are.

        Raises AgentKVError for a bad value, beginning with ``where``.
        """
        ...


@dataclass(frozen=True)
class Made:
    """Made by a function whose defaults are those of the parameters.

    Attributes:
        maker: takes the parameters by name.
        checks: of each parameter.
    """

    maker: Callable[..., Any]
    checks: Mapping[str, Check]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.checks)

    def make(self, where: str, given: Mapping[str, object]) -> tuple[Any, dict[str, object]]:
        known = inspect.signature(self.maker).parameters
        values = {name: known[name].default for name in self.checks}
        values |= {name: self.checks[name](where, name, value) for name, value in given.items()}
        return self.maker(**values), values


@dataclass(frozen=True)
class ScorerOf:
    """The scorer of a registered policy.

    Attributes:
        policy: its name.
        parameters: those of its options that concern the scorer.
    """

    policy: str
    parameters: tuple[str, ...] = ()

    def make(self, where: str, given: Mapping[str, object]) -> tuple[Any, dict[str, object]]:
        try:
            policy = build(self.policy, **dict[str, Any](given))
        except AgentKVError as error:
            raise AgentKVError(f"{where}: {error}") from error
        return policy.scorer, {name: policy.options[name] for name in self.parameters}


@dataclass(frozen=True)
class ByRoleOf:
    """Favours the agent's task and replies, and the newest observation, in what another scorer decides on."""

    parameters: tuple[str, ...] = ("of", "own", "newest")

    def make(self, where: str, given: Mapping[str, object]) -> tuple[Any, dict[str, object]]:
        inner, resolved = _scorer(f"{where}: of", given.get("of"))
        own = check_unit(where, "own", given.get("own", ByRole.own), most=100)
        newest = check_unit(where, "newest", given.get("newest", ByRole.newest), most=100)
        return ByRole((inner,), own=own, newest=newest), {"of": resolved, "own": own, "newest": newest}


@dataclass(frozen=True)
class MixtureOf:
    """Several scorers, by the sum of their ranks."""

    parameters: tuple[str, ...] = ("of", "weights")

    def make(self, where: str, given: Mapping[str, object]) -> tuple[Any, dict[str, object]]:
        written = given.get("of")
        if not isinstance(written, list | tuple) or len(written) < 2:
            raise AgentKVError(f"{where}: of must be a list of two scorers or more, not {written!r}")
        made = [_scorer(f"{where}: of", one) for one in written]
        parts, resolved = tuple(part for part, _ in made), [one for _, one in made]
        if (why := clash(parts)) is not None:
            raise AgentKVError(f"{where}: of: {why}")
        weights = given.get("weights", [1.0] * len(parts))
        if not isinstance(weights, list | tuple) or len(weights) != len(parts):
            raise AgentKVError(f"{where}: weights must be a list of {len(parts)} numbers, not {weights!r}")
        values = [check_positive(where, "weights", weight) for weight in weights]
        return Mixture(parts, tuple(values)), {"of": resolved, "weights": values}


def _scorer(where: str, written: object) -> tuple[Scorer, object]:
    made, resolved = make_part(where, SCORERS, written)
    if made is None:
        raise AgentKVError(f"{where}: nothing is scored; name a scorer: {', '.join(SCORERS)}")
    scorer: Scorer = made
    return scorer, resolved


def make_part(where: str, parts: Mapping[str, Part], written: object) -> tuple[Any, object]:
    """The component, and what to write for it with every parameter named; written as a name or {name: …, …}.

    Raises AgentKVError, beginning with ``where``, for names there are not and bad values.
    """
    given = {"name": written} if isinstance(written, str) else written
    if written is None or written == "none":
        return None, "none"
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise AgentKVError(f"{where} must be a name or a mapping with one, not {written!r}; names: {', '.join(parts)}")
    name, given = given["name"], {key: value for key, value in given.items() if key != "name"}
    check_known(where, "part", (name,), parts)
    part = parts[name]
    check_known(f"{where}: {name}", "parameter", given, part.parameters)
    component, values = part.make(where, given)
    return component, {"name": name, **values}


def check_known(where: str, kind: str, given: Iterable[object], known: Iterable[str]) -> None:
    """Raises AgentKVError for a name that is not among those known."""
    known = tuple(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise AgentKVError(f"{where}: there is no {kind} {name!r}; {hint}known: {', '.join(known) or 'none'}")


def _queries(where: str, name: str, value: object) -> int | None:
    return None if value is None else check_count(where, name, value, least=1)


def _positive_count(where: str, name: str, value: object) -> int:
    return check_count(where, name, value, least=1)


def _at_least_one(where: str, name: str, value: object) -> float:
    number = check_positive(where, name, value)
    if number < 1:
        raise AgentKVError(f"{where}: {name} must be at least 1, not {value!r}")
    return number


def _positive_unit(where: str, name: str, value: object) -> float:
    check_positive(where, name, value)
    return check_unit(where, name, value)


def _format(where: str, name: str, value: object) -> str:
    return check_choice(where, name, value, tuple(FORMATS))


def _rule(decay: float, queries: int | None) -> AttentionRule:
    """Mass that adds up for ever (decay 1), or a moving average."""
    return AttentionRule(decay, 1.0 if decay == 1 else 1 - decay, queries)


def _attention_mass(decay: float = 1.0, queries: int | None = None) -> AttentionMass:
    return AttentionMass(_rule(decay, queries))


def _mass_and_recency(
    alpha: float = 0.65, decay: float = 0.9, queries: int | None = None, scale: Scale = "largest"
) -> MassAndRecency:
    return MassAndRecency(alpha, _rule(decay, queries), scale)


def _scale(where: str, name: str, value: object) -> str:
    return check_choice(where, name, value, get_args(Scale))


def _age(format: str = "int8", fp_window: Share = 1 / 16, block: int = 16) -> AgePrecision:
    return AgePrecision(fp_window, FORMATS[format], block)


def _layer_share(
    format: str = "fp8", tau_dispersion: float = 7.774, tau_variance: float = 5.407, tau_kurtosis: float = 5.528
) -> ScorePrecision:
    return ScorePrecision(OriginShare(tau_dispersion, tau_variance, tau_kurtosis), FORMATS[format])


_MASS: dict[str, Check] = {"decay": check_unit, "queries": _queries}
_TAUS: dict[str, Check] = dict.fromkeys(("tau_dispersion", "tau_variance", "tau_kurtosis"), check_positive)

SCORERS: dict[str, Part] = {
    "recency": Made(Recency, {}),
    "noise": ScorerOf("random", ("seed",)),
    "attention-mass": Made(_attention_mass, _MASS),
    "mass-and-recency": Made(_mass_and_recency, {"alpha": check_unit, **_MASS, "scale": _scale}),
    "window-mass": ScorerOf("snapkv", ("window", "kernel")),
    "window-statistics": ScorerOf("arkv", ("window", "gamma")),
    "importance-and-redundancy": ScorerOf("r-kv", ("weight", "window", "kernel")),
    "key-norm": ScorerOf("knorm"),
    "key-difference": ScorerOf("keydiff"),
    "retention": ScorerOf("trim-kv", ("gates", "seed", "digest")),
    "segment-surprise": ScorerOf("surprise"),
    "segment-rarity": Made(SegmentRarity, {}),
    "oldest-observation": ScorerOf("obs-window"),
    "by-role": ByRoleOf(),
    "mixture": MixtureOf(),
}
ALLOCATORS: dict[str, Part] = {
    "uniform": Made(Uniform, {}),
    "pyramid": Made(Pyramid, {"beta": _at_least_one}),
    "geometric": Made(Geometric, {"beta": _positive_unit, "least": check_count}),
    "global": Made(Global, {"ceiling": _at_least_one}),
}
PRECISIONS: dict[str, Part] = {
    "age": Made(_age, {"format": _format, "fp_window": check_share, "block": _positive_count}),
    "layer-share": Made(_layer_share, {"format": _format, **_TAUS}),
}
TRIGGERS: dict[str, Part] = {
    "each-token": Made(EachToken, {}),
    "block": Made(Block, {"size": check_share}),
    "confidence": Made(Confidence, {"threshold": check_unit, "tight": check_share}),
}
