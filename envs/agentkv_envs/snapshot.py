"""Reading Playwright's AI snapshot (a YAML-like tree of ARIA roles) into nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_HEAD = re.compile(r'^(?P<role>[\w-]+)(?: (?P<name>"(?:[^"\\]|\\.)*"))?(?P<attrs>(?: \[[^\]]*\])*)$')
_ATTR = re.compile(r"\[([\w-]+)(?:=([^\]]*))?\]")
# The invisible mark that settle.js puts into the alternative text of a picture.
_PICTURE = re.compile("\u2063([\ufe00-\ufe0f]+)")


@dataclass
class Node:
    """One accessible object; `text` is the text directly in it, `attrs` holds ref, checked, level, ..."""

    role: str
    name: str = ""
    text: str = ""
    attrs: dict[str, str] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)

    @property
    def ref(self) -> str:
        """Playwright's handle of the element ("" for plain text)."""
        return self.attrs.get("ref", "")

    @property
    def box(self) -> tuple[float, float, float, float] | None:
        """x, y, width and height on the screen in CSS pixels of the viewport; None where it has no area."""
        try:
            x, y, width, height = (float(n) for n in self.attrs.get("box", "").split(","))
        except ValueError:
            return None
        return (x, y, width, height) if height else None

    def walk(self) -> Iterator[Node]:
        """This node and all below it, in reading order."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse_snapshot(text: str) -> Node:
    """The snapshot as a tree under one "document" node.

    Lines that are not understood become plain text, so that nothing on a page can break the reader.
    """
    root = Node("document")
    stack: list[tuple[int, Node]] = [(-1, root)]
    for line in text.split("\n"):
        body = line.lstrip(" ")
        if not body.startswith("- "):
            continue
        indent = len(line) - len(body)
        while stack[-1][0] >= indent:
            stack.pop()
        node = _read_line(body[2:])
        parent = stack[-1][1]
        if node.role.startswith("/"):
            parent.attrs[node.role[1:]] = node.text
            continue
        parent.children.append(node)
        stack.append((indent, node))
    return root


def _read_line(body: str) -> Node:
    key, value = _split(body)
    if key == "text":
        return Node("text", text=value)
    if key.startswith("/"):
        return Node(key, text=value)
    head = _HEAD.match(key)
    if head is None:
        return Node("text", text=" ".join((key, value)).strip())
    attrs = {m.group(1): m.group(2) if m.group(2) is not None else "true" for m in _ATTR.finditer(head["attrs"])}
    name = _unquote(head["name"] or "")
    if "\u2063" in name:
        if head["role"] == "img" and (mark := _PICTURE.search(name)) is not None:
            attrs["picture"] = mark.group(1)
        name = " ".join(_PICTURE.sub("", name).split())
    return Node(head["role"], name, value, attrs)


def _split(body: str) -> tuple[str, str]:
    """Key and value of a YAML line whose key may be single-quoted and whose value may be double-quoted."""
    if body.startswith("'"):
        end = re.search(r"(?<!')(?:'')*'(?!')", body[1:])
        if end is not None:
            key = body[1 : end.end()].replace("''", "'")
            return key, _unquote(body[end.end() + 1 :].removeprefix(":").strip())
    colon = _colon(body)
    if colon < 0:
        return body, ""
    return body[:colon], _unquote(body[colon + 1 :].strip())


def _colon(body: str) -> int:
    """Position of the colon that ends the key: the first one outside quotes and brackets."""
    quoted = False
    escaped = False
    for i, char in enumerate(body):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif char == ":" and not quoted and body[i + 1 : i + 2] in ("", " "):
            return i
    return -1


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text, strict=False))
        except ValueError:
            return text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text
