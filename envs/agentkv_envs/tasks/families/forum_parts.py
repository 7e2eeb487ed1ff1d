"""What the families of the forum share: posts drawn from the database, facts found there, and their uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentkv_envs.tasks.draft import Draw, Step, click, read, require, scan, type_in
from agentkv_envs.tasks.families.parts import Found, Use, rows, state
from agentkv_envs.tasks.families.shop_parts import Row

HOME = "__FORUM__/"
SITE = "forum"
ME = 1
# Not the member's own, open to comments, and nothing has been done with it yet. The body shows without a click, and a
# title is no longer than what the grammar of actions lets be typed.
_OPEN = (
    f"p.author_id != {ME} AND NOT p.locked AND LENGTH(p.body) BETWEEN 1 AND 130 AND LENGTH(p.title) < 60"
    " AND f.door_word = ''"
    " AND p.id NOT IN (SELECT post_id FROM saved) AND p.id NOT IN (SELECT post_id FROM hidden)"
    " AND p.id NOT IN (SELECT post_id FROM post_vote)"
    f" AND NOT EXISTS (SELECT 1 FROM comment c WHERE c.post_id = p.id AND c.author_id = {ME})"
)
_SELECT = (
    "SELECT p.*, u.name AS author, u.accepts_mail, f.name AS forum FROM post p JOIN user u ON u.id = p.author_id"
    " JOIN forum f ON f.id = p.forum_id"
)
_COMMENTS = "(SELECT COUNT(*) FROM comment c WHERE c.post_id = q.id)"
# Label of a fact in the database, and what an intent calls it.
FACTS = (
    ("date", "date"),
    ("time", "time of day"),
    ("place", "meeting place"),
    ("size", "length"),
    ("weight", "weight"),
    ("distance", "distance"),
    ("colour", "colour"),
)
CODES = (("code", "code word"), ("phone", "phone number"))
_LETTERS = (
    (r"start at (\d+:\d\d)", "time of day"),
    (r"booked for (\d+ \w+)", "date"),
    (r"it is (\d+ cm) long", "length"),
    (r"repair takes (\d+ days)", "repair time"),
    (r"parcel of (\d+ g)", "weight of the parcel"),
    (r"leave at (\d+:\d\d)", "time of departure"),
)
_NOTES = ((r"opens with (\d+)", "number that opens the box"), (r"word of \w+ is (\w+)", "door word"))


def post(draw: Draw, where: str = "1", args: tuple[object, ...] = (), *, without: str = "") -> Row:
    """Any post of somebody else's.

    Args:
        without: a text that neither the post nor a comment on it may hold.
    """
    if without:
        where += (
            " AND INSTR(p.title || ' ' || p.body, ?) = 0"
            " AND NOT EXISTS (SELECT 1 FROM comment c WHERE c.post_id = p.id AND INSTR(c.body, ?))"
        )
        args += (without, without)
    return draw.one(SITE, f"{_SELECT} WHERE {_OPEN} AND {where}", *args)


def page_of(row: Row) -> str:
    """The address of a post, whatever follows its number."""
    return f"/f/{row['forum']}/{row['id']}*"


def open_post(row: Row) -> list[Step]:
    """Search for a post by its title and open it."""
    return [type_in("Search posts", row["title"], enter=True), click(row["title"])]


def save(row: Row) -> list[Step]:
    """Save a post: 3 actions."""
    return [*open_post(row), click("Save")]


def is_saved(row: Row) -> dict[str, object]:
    return rows(SITE, f"SELECT COUNT(*) FROM saved WHERE post_id = {row['id']}", [1])


def said(row: Row, text: str) -> dict[str, object]:
    """The member's comments on a post are this one."""
    return rows(SITE, f"SELECT body FROM comment WHERE author_id = {ME} AND post_id = {row['id']}", [text])


def stored(*checks: Mapping[str, Any], free: tuple[str, ...]) -> dict[str, Any]:
    """eval_ext: these rows hold, and nothing of the forum changes but what is free."""
    return {"db_state": state(checks, {SITE: free})}


def inbox(draw: Draw) -> Step:
    unread = draw.value(SITE, "SELECT COUNT(*) FROM thread WHERE unread")
    return click(f"Inbox ({unread})" if unread else "Inbox")


# Facts


def post_with(draw: Draw, label: str) -> tuple[Row, str]:
    """A post whose text holds exactly one drawn value of this label, which no comment on it repeats."""
    found = draw.rows(
        SITE,
        f"SELECT q.*, x.value FROM ({_SELECT} WHERE {_OPEN}) q JOIN fact x ON x.post_id = q.id AND x.comment_id IS NULL"
        # Where there are many comments, a longer text is cut short.
        f" WHERE x.label = ? AND INSTR(q.body, x.value) AND (LENGTH(q.body) <= 75 OR {_COMMENTS} <= 3) AND NOT EXISTS"
        " (SELECT 1 FROM comment c WHERE c.post_id = q.id AND INSTR(c.body, x.value))",
        label,
    )
    numbers = [row["id"] for row in found]
    row = draw.choice([row for row in found if numbers.count(row["id"]) == 1])
    return row, str(row["value"])


def found_in_post(draw: Draw, facts: Sequence[tuple[str, str]], kind: str) -> Found:
    """A value in the text of a post."""
    label, called = draw.choice(facts)
    source, value = post_with(draw, label)
    template = draw.choice(
        (
            "look up the {{what}} in the post '{{post}}'",
            "read which {{what}} the post '{{post}}' names",
            "find the {{what}} in what {{author}} wrote under the title '{{post}}'",
        )
    )
    values = {"what": called, "post": source["title"], "author": source["author"]}
    return Found(
        kind,
        template,
        {key: value for key, value in values.items() if f"{{{{{key}}}}}" in template},
        (*open_post(source), read(value)),
        value,
        value,
        f"the {called} in the post {source['title']} is {value}.",
    )


def found_reply(draw: Draw) -> Found:
    """Whom somebody's comment answers."""
    item = post(draw, "(SELECT COUNT(*) FROM comment c WHERE c.post_id = p.id) BETWEEN 2 AND 3")
    found = draw.rows(
        SITE,
        "SELECT u.name AS person, w.name AS other FROM comment c JOIN comment q ON q.id = c.parent_id"
        " JOIN user u ON u.id = c.author_id JOIN user w ON w.id = q.author_id WHERE c.post_id = ? AND u.id != w.id",
        item["id"],
    )
    people = [row["person"] for row in found]
    row = draw.choice([row for row in found if people.count(row["person"]) == 1 and row["other"] != item["author"]])
    template = draw.choice(
        (
            "see whose comment {{person}} answers under the post '{{post}}'",
            "look under the post '{{post}}' whom {{person}} replies to",
        )
    )
    return Found(
        "relation",
        template,
        {"person": row["person"], "post": item["title"]},
        (*open_post(item), scan(f"{row['person']} to {row['other']}")),
        f"{row['person']} to {row['other']}",
        row["other"],
        f"under {item['title']}, {row['person']} replies to {row['other']}.",
    )


def found_letter(draw: Draw) -> Found:
    """What somebody has written in a private message."""
    return _letter(
        draw, _LETTERS, "attribute", "vanishes = 0", "see in the message from {{other}} what the {{what}} is"
    )


def found_note(draw: Draw) -> Found:
    """A number or word in a note that vanishes once it was read."""
    template = "read the note that vanishes from {{other}} and remember the {{what}}"
    return _letter(draw, _NOTES, "code", "vanishes = 1", template)


def _letter(draw: Draw, patterns: Sequence[tuple[str, str]], kind: str, where: str, template: str) -> Found:
    letters = draw.rows(
        SITE,
        "SELECT m.body, u.name FROM message m JOIN thread t ON t.id = m.thread_id JOIN user u ON u.id = t.user_id"
        f" WHERE NOT m.mine AND {where}",
    )
    hits = [
        (row["name"], hit.group(1), called)
        for row in letters
        for pattern, called in patterns
        # The first words stand in the list of messages already.
        if (hit := re.search(pattern, row["body"])) and (hit.start(1) > 36 or "vanishes = 1" in where)
    ]
    require(hits)
    other, value, called = draw.choice(hits)
    return Found(
        kind,
        template,
        {"what": called, "other": other},
        (inbox(draw), click(other), read(value)),
        value,
        value,
        f"the {called} of {other} is {value}.",
        {SITE: ("thread.unread", "message.body", "message.vanishes")},
    )


# Uses


def comment_on_post(draw: Draw, value: str) -> Use:
    """A post is saved first, then another one commented on: the fact is needed as the 6th action."""
    c = post(draw, without=value)
    d = post(draw, "p.forum_id != ?", (c["forum_id"],), without=value)
    template = draw.choice(
        (
            "save the post '{{c}}', and then comment on '{{d}}' with that and nothing else",
            "save '{{c}}' for later and write only that as a comment under the post '{{d}}'",
        )
    )
    return Use(
        template,
        {"c": c["title"], "d": d["title"]},
        (*save(c), *open_post(d), type_in("Comment", value, uses=True), click("Post")),
        SITE,
        page_of(d),
        rows=(said(d, value), is_saved(c)),
        free={SITE: ("comment", "saved", "clock")},
    )


def message_author(draw: Draw, value: str) -> Use:
    """A post is saved first, then the author of another one gets a message: the fact is needed as the 8th action."""
    c = post(draw, without=value)
    d = post(draw, "p.forum_id != ? AND u.accepts_mail", (c["forum_id"],), without=value)
    require(not draw.rows(SITE, "SELECT 1 FROM thread WHERE user_id = ?", d["author_id"]))
    template = draw.choice(
        (
            "save the post '{{c}}', and then send the author of '{{d}}' a message with that and nothing else",
            "save '{{c}}' for later, go from the post '{{d}}' to its author, and send a message that is only that",
        )
    )
    sent = (
        "SELECT m.body FROM message m JOIN thread t ON t.id = m.thread_id"
        f" WHERE m.mine AND t.user_id = {d['author_id']}"
    )
    return Use(
        template,
        {"c": c["title"], "d": d["title"]},
        (
            *save(c),
            *open_post(d),
            click(d["author"]),
            click("Send message"),
            type_in("Message", value, uses=True),
            click("Send"),
        ),
        SITE,
        "/user/*/compose_message",
        rows=(rows(SITE, sent, [value]), is_saved(c)),
        free={SITE: ("message", "thread", "saved", "clock")},
    )
