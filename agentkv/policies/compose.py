"""Policies put together from named parts, as a recipe says: any scorer, allocator, precision and trigger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agentkv.errors import AgentKVError
from agentkv.policies.base import Policy
from agentkv.policies.parts import ALLOCATORS, PRECISIONS, SCORERS, TRIGGERS, check_known, make_part
from agentkv.policies.registry import parse_roles, register
from agentkv.policies.scorers import SegmentMean
from agentkv.policies.shares import check_count, check_share

_PARTS = {"scorer": SCORERS, "allocator": ALLOCATORS, "precision": PRECISIONS, "trigger": TRIGGERS}
_EVICTING = ("allocator", "trigger", "sinks", "recent", "protect", "segments", "whole_observations")
"""Keys that say how tokens are evicted."""
_KEYS = ("name", "scorer", "precision", *_EVICTING)


@register("compose")
def compose(recipe: str | Path | Mapping[str, object]) -> Policy:
    """Whatever a recipe says: a YAML file, or its content as a dictionary; see docs/policies/compose.md.

    Raises AgentKVError, naming file and key, for what is unknown, of the wrong kind, or does not go together.
    """
    where = "recipe" if isinstance(recipe, Mapping) else str(recipe)
    try:
        if isinstance(recipe, Mapping):
            return _composed(where, recipe, "compose")
        if not isinstance(recipe, str | Path):
            raise AgentKVError(f"a recipe is the path of a file or a mapping, not {recipe!r}")
        path = Path(recipe).expanduser()
        return _composed(where, _read(path), path.stem)
    except RecursionError as error:
        raise AgentKVError(f"{where}: scorers are nested too deep, or one is a part of itself") from error
    except AgentKVError as error:
        text = str(error)
        raise error if text.startswith(f"{where}: ") else AgentKVError(f"{where}: {text}") from error


def _composed(where: str, content: Mapping[str, object], default_name: str) -> Policy:
    check_known(where, "key", content, _KEYS)
    name = content.get("name", default_name)
    if not isinstance(name, str) or not name:
        raise AgentKVError(f"{where}: name must be a text, not {name!r}")
    if "scorer" not in content:
        raise AgentKVError(f"{where}: there is no scorer; write 'scorer: none' for a policy that evicts nothing")
    made: dict[str, Any] = {}
    resolved: dict[str, object] = {"name": name}
    for key, parts in _PARTS.items():
        if key in content:
            made[key], resolved[key] = make_part(f"{where}: {key}", parts, content[key])
    settings = _settings(where, content)
    if made["scorer"] is None and (vain := [key for key in _EVICTING if key in content]):
        raise AgentKVError(f"{where}: {vain[0]}: with scorer none nothing is evicted, so there is nothing to say of it")
    if settings.pop("segments", False) and not made["scorer"].by_segment:
        made["scorer"], resolved["segments"] = SegmentMean.over(made["scorer"]), True
    resolved |= settings
    if "protect" in settings:
        settings["protect"] = parse_roles(f"{where}: protect", settings["protect"])
    made = {key: part for key, part in made.items() if part is not None or key == "scorer"}
    return Policy(name=name, **made, **settings, options={"recipe": resolved}, builder="compose")


def _settings(where: str, content: Mapping[str, object]) -> dict[str, Any]:
    """The keys that are no parts, checked, as far as they are there."""
    settings: dict[str, Any] = {}
    if "sinks" in content:
        settings["sinks"] = check_count(where, "sinks", content["sinks"])
    if "recent" in content:
        settings["recent"] = check_share(where, "recent", content["recent"])
    for key in ("segments", "whole_observations"):
        if key in content:
            if not isinstance(content[key], bool):
                raise AgentKVError(f"{where}: {key} must be true or false, not {content[key]!r}")
            settings[key] = content[key]
    if "protect" in content:
        protect = content["protect"]
        if not isinstance(protect, list | tuple):
            raise AgentKVError(f"{where}: protect must be a list of roles, not {protect!r}")
        settings["protect"] = list(protect)
    return settings


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is written twice, of which YAML would silently take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            problem = f"the key {twice[0]!r} is written twice"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> Mapping[str, object]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # a SafeLoader
    except FileNotFoundError as error:
        raise AgentKVError("there is no such recipe") from error
    except (OSError, UnicodeDecodeError) as error:
        raise AgentKVError(f"the recipe cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise AgentKVError(f"this is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise AgentKVError(f"a recipe is a mapping of {', '.join(_KEYS)}")
    return content
