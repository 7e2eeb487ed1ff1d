"""Tightening JSON schemas for decoding: what fits the tighter schema fits the user's, and ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentkv.errors import Unsupported
from agentkv.tools.calls import MAX_DEPTH, deeper

MAX_STRING = 512
"""Characters of a string that the schema leaves open."""
MAX_ITEMS = 32
"""Items of an array that the schema leaves open."""
MAX_INTEGER = 10**15
"""A bound on integers that the schema leaves open: above it, a float would not hold them."""
MAX_PROPERTIES = 5000
"""Of all objects of a schema; the time to compile one grows with their square."""
_LEAVE_OPEN = ("allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties", "unevaluatedProperties")
"""Beside or around these, closing an object could contradict the schema."""
_STRING_BOUNDS = ("maxLength", "pattern", "format", "enum", "const")
_INTEGER_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const")


def tighten(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of the same documents, less those that never end or that nobody asked for.

    A greedy small model in an open string writes until it is cut off, and fills an open object with junk keys. So
    objects that list their properties get no others, and strings, arrays and integers without bounds get wide ones.
    Whatever the result accepts, `schema` accepts too.

    Raises:
        Unsupported: the schema is no JSON, nested too deep or too large.
    """
    try:
        plain = json.loads(json.dumps(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unsupported(f"the JSON schema is not valid JSON: {error}") from error
    if deeper(plain):
        raise Unsupported(f"the JSON schema is nested more than {MAX_DEPTH} levels deep")
    if (count := _properties(plain)) > MAX_PROPERTIES:
        raise Unsupported(f"the JSON schema has {count} properties; at most {MAX_PROPERTIES} can be compiled")
    # A definition that others build on must stay open for what they add.
    return _tight_object(plain, closes=True, closes_named="allOf" not in _keys(plain))


def _tight(schema: Any, closes: bool, closes_named: bool) -> Any:
    return _tight_object(schema, closes, closes_named) if isinstance(schema, dict) else schema


def _tight_object(schema: dict[str, Any], closes: bool, closes_named: bool) -> dict[str, Any]:
    tight = {key: _inside(key, value, closes_named) for key, value in schema.items()}
    kind = schema.get("type")
    kinds = {part for part in (kind if isinstance(kind, list) else [kind]) if isinstance(part, str)}
    if closes and "properties" in schema and not set(_LEAVE_OPEN) & set(schema) and _is_open(schema):
        tight["additionalProperties"] = False
    if "string" in kinds and not set(_STRING_BOUNDS) & set(schema):
        tight["maxLength"] = max(MAX_STRING, _whole(schema.get("minLength")))
    if "array" in kinds and not {"maxItems", "enum", "const"} & set(schema):
        tight["maxItems"] = max(MAX_ITEMS, _whole(schema.get("minItems")))
    if "integer" in kinds and "number" not in kinds and not set(_INTEGER_BOUNDS) & set(schema):
        tight |= {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER}
    return tight


def _whole(bound: Any) -> int:
    """A lower bound; 0 where there is none or it is no number, which the compiler refuses."""
    return bound if isinstance(bound, int) else 0


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Whether other properties are allowed only because nobody said otherwise, or by a plain yes."""
    return schema.get("additionalProperties", True) is True


def _inside(key: str, value: Any, closes_named: bool) -> Any:
    """The parts of a schema that are schemas themselves.

    What is joined by allOf must stay open for the others, and a document may be open to fit only one of oneOf.
    """
    if key in ("$defs", "definitions") and isinstance(value, dict):
        return {name: _tight(part, closes_named, closes_named) for name, part in value.items()}
    if key in ("properties", "patternProperties") and isinstance(value, dict):
        return {name: _tight(part, True, closes_named) for name, part in value.items()}
    if key in ("items", "additionalProperties"):
        return _tight(value, True, closes_named)
    if key in ("anyOf", "prefixItems", "allOf", "oneOf") and isinstance(value, list):
        return [_tight(part, key not in ("allOf", "oneOf"), closes_named) for part in value]
    return value


def _properties(value: Any) -> int:
    """How many properties all objects of a schema have."""
    if isinstance(value, dict):
        own = value.get("properties")
        return (len(own) if isinstance(own, dict) else 0) + sum(map(_properties, value.values()))
    return sum(map(_properties, value)) if isinstance(value, list) else 0


def _keys(value: Any) -> set[str]:
    """Every key of nested mappings."""
    if isinstance(value, dict):
        return set(value).union(*(_keys(part) for part in value.values()))
    return set().union(*(_keys(part) for part in value)) if isinstance(value, list) else set()
