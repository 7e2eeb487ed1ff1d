"""What the accessibility tree does not tell: what pictures show, hidden file inputs, where frames are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agentkv_envs.actions import clean_label
from agentkv_envs.inline import text_of
from agentkv_envs.snapshot import Node

_LINES = frozenset({"listitem", "row", "article", "link", "button"})
_WORD = re.compile(r"\w+")


def add_captions(root: Node, captions: Mapping[str, tuple[str, str]]) -> None:
    """Write captions into the tree.

    A picture whose line says all that it shows stays silent, whatever a noisy caption would say of it: the decision
    rests on what it truly shows.

    Args:
        root: the tree, changed in place.
        captions: a picture's mark to (caption, what it truly shows).
    """
    if captions:
        _add_captions(root, None, captions)


def _add_captions(node: Node, line: Node | None, captions: Mapping[str, tuple[str, str]]) -> None:
    for child in node.children:
        if child.role == "img" and (found := captions.get(child.attrs.get("picture", ""))):
            caption, truth = found
            if line is None or not _words(truth) <= _words(text_of(line)):
                child.attrs["caption"] = caption
        outer = line if line is not None and line.role != "link" else None
        _add_captions(child, outer or (child if child.role in _LINES else line), captions)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def add_file_inputs(root: Node, inputs: Sequence[Mapping[str, str]]) -> None:
    """Turn the node that labels a file input into an element of role "file"; one without such a node comes last.

    Args:
        root: the tree, changed in place.
        inputs: label and value of each file input of the document, in document order.
    """
    taken: set[int] = set()
    for number, entry in enumerate(inputs):
        label = clean_label(entry["label"])
        named = [n for n in root.walk() if id(n) not in taken and _labels(n, label)]
        # An input that is not hidden is a button of its own.
        node = next((n for n in named if n.role == "button"), named[0] if named else None)
        if node is None:
            node = Node("file")
            root.children.append(node)
        taken.add(id(node))
        box = {"box": node.attrs["box"]} if "box" in node.attrs else {}
        node.role, node.name, node.text, node.children = "file", label, entry["value"], []
        node.attrs = {"ref": f"file{number}", **box}


def place_frames(node: Node, dx: float = 0.0, dy: float = 0.0) -> None:
    """Turn boxes within frames, which are told from the frame's own corner, into boxes on the screen."""
    if (dx or dy) and node.box is not None:
        x, y, width, height = node.box
        node.attrs["box"] = f"{x + dx:g},{y + dy:g},{width:g},{height:g}"
    if node.role == "iframe" and node.box is not None:
        dx, dy = node.box[:2]
    for child in node.children:
        place_frames(child, dx, dy)


def _labels(node: Node, label: str) -> bool:
    if node.role in ("button", "text", "generic", "paragraph"):
        return clean_label(node.name or text_of(node)) == label
    return False
