"""Policies by name. Strict: a name is registered once, and a miss lists the names there are."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import entry_points

from agentkv.cache.facts import Role
from agentkv.errors import AgentKVError, UnknownName
from agentkv.policies.base import Policy
from agentkv.policies.scorers import SegmentMean

Builder = Callable[..., Policy]
ENTRY_POINT_GROUP = "agentkv.policies"
RECIPES = (".yaml", ".yml")
"""A policy whose name ends like this is a recipe, a file that says what to put together."""
_builders: dict[str, Builder] = {}
_plugins_loaded = False


def register(name: str) -> Callable[[Builder], Builder]:
    """Decorator for a function that builds a policy from keyword options.

    Raises AgentKVError if the name is empty or taken.
    """

    def add(builder: Builder) -> Builder:
        if not name:
            raise AgentKVError("a policy needs a name")
        if name in _builders:
            raise AgentKVError(
                f"policy {name!r} is registered twice: {_builders[name].__module__}, {builder.__module__}"
            )
        _builders[name] = builder
        return builder

    return add


def names() -> tuple[str, ...]:
    """Every registered policy that needs no option, those of installed plug-ins (entry points ``agentkv.policies``)
    included."""
    _load_plugins()
    return tuple(name for name, builder in _builders.items() if not _needs_option(builder))


def _needs_option(builder: Builder) -> bool:
    return any(option.default is option.empty for option in inspect.signature(builder).parameters.values())


def is_recipe(name: str) -> bool:
    """Whether a policy is given by the path of a recipe instead of a name."""
    return name.endswith(RECIPES)


def describe(name: str) -> str:
    """First line of the policy's documentation."""
    return (inspect.getdoc(_builder(name)) or "").splitlines()[0]


def build(name: str, *, protect: Sequence[str] = (), segments: bool = False, **options: object) -> Policy:
    """The policy ``name`` with these options.

    Args:
        name: as registered, or the path of a recipe (.yaml): see docs/policies/compose.md.
        protect: roles whose words are never evicted, of "system", "task", "observation" (the newest one), "action".
        segments: score whole sentences or lines instead of single tokens.
        options: the policy's own.

    Raises:
        UnknownName: no such policy.
        AgentKVError: an option the policy does not have, or a bad value.
    """
    if not isinstance(name, str):
        raise UnknownName(f"a policy is given by its name or the path of a recipe, not by {name!r}")
    if is_recipe(name):
        name, options = "compose", {"recipe": name, **options}
    builder = _builder(name)
    known = inspect.signature(builder).parameters
    for option in options:
        if option not in known:
            has = ", ".join([*known, "protect", "segments"])
            raise AgentKVError(f"policy {name!r} has no option {option!r}; it has {has}")
    lacking = [option for option, parameter in known.items() if parameter.default is parameter.empty]
    if missing := [option for option in lacking if option not in options]:
        raise AgentKVError(f"policy {name!r} needs the option {missing[0]!r}")
    policy = builder(**options)
    if protect:
        policy = _protecting(policy, protect)
    if not isinstance(segments, bool):
        raise AgentKVError(f"{policy.name}: segments must be true or false, not {segments!r}")
    return _by_segment(policy) if segments else policy


def parse_roles(where: str, names: Sequence[str]) -> tuple[Role, ...]:
    """Roles to protect, by name. Raises AgentKVError, beginning with ``where``, for a role there is not."""
    roles = [role.value for role in Role if role is not Role.OTHER]
    for name in names:
        if name not in roles:
            raise AgentKVError(f"{where}: cannot protect {name!r}; roles: {', '.join(roles)}")
    return tuple(Role(name) for name in names)


def _protecting(policy: Policy, protect: Sequence[str]) -> Policy:
    if not isinstance(protect, Iterable):
        raise AgentKVError(f"{policy.name}: protect must be a list of roles, not {protect!r}")
    given = [protect] if isinstance(protect, str) else list(protect)
    return replace(policy, protect=parse_roles(policy.name, given), options={**policy.options, "protect": given})


def _by_segment(policy: Policy) -> Policy:
    if policy.scorer is None:
        raise AgentKVError(f"{policy.name}: it evicts nothing, so there are no segments to score")
    if policy.scorer.by_segment:
        return policy
    return replace(policy, scorer=SegmentMean.over(policy.scorer), options={**policy.options, "segments": True})


def _builder(name: str) -> Builder:
    _load_plugins()
    if name not in _builders:
        near = difflib.get_close_matches(name, _builders, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownName(f"unknown policy {name!r}; {hint}policies: {', '.join(_builders)}")
    return _builders[name]


def _load_plugins() -> None:
    global _plugins_loaded  # noqa: PLW0603 - loaded once per process, on first use
    if not _plugins_loaded:
        _plugins_loaded = True
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            entry.load()
