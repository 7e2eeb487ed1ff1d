"""Families of the forum."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    Needle,
    answer,
    click,
    ends_on,
    family,
    read,
    require,
    select,
    stop,
    type_in,
    unachievable,
)
from agentkv_envs.tasks.families.forum_parts import (
    CODES,
    FACTS,
    HOME,
    ME,
    SITE,
    comment_on_post,
    found_in_post,
    found_letter,
    found_note,
    found_reply,
    inbox,
    is_saved,
    message_author,
    open_post,
    page_of,
    post,
    post_with,
    said,
    save,
)
from agentkv_envs.tasks.families.parts import join, rows, state
from agentkv_envs.tasks.families.shop_parts import Row

# Reading a note that vanishes changes these.
_NOTE = ("thread.unread", "message.body", "message.vanishes")


def _stored(*checks: Mapping[str, Any], free: tuple[str, ...]) -> dict[str, Any]:
    """eval_ext: these rows hold, and nothing changes but what is free."""
    return {"db_state": state(checks, {SITE: free})}


# Short ones


@family(SITE)
def fact_in_post(draw: Draw) -> Draft:
    label, called = draw.choice((*FACTS, *CODES))
    source, value = post_with(draw, label)
    template = draw.choice(
        (
            "Which {{what}} does the post '{{post}}' name?",
            "Tell me the {{what}} from the post '{{post}}'.",
            "What is the {{what}} in the post '{{post}}'? Answer N/A if it names none.",
        )
    )
    plan = (*open_post(source), read(value), stop(value))
    return Draft(template, {"what": called, "post": source["title"]}, (HOME,), answer(value), plan)


@family(SITE)
def save_post(draw: Draw) -> Draft:
    item = post(draw)
    template = draw.choice(
        ("Save the post '{{post}}'.", "Keep the post '{{post}}' for later: save it.", "Save '{{post}}', by {{author}}.")
    )
    values = {"post": item["title"]} | ({"author": item["author"]} if "author" in template else {})
    ext = _stored(is_saved(item), free=("saved",))
    return Draft(template, values, (HOME,), {}, (*save(item), stop()), changes=True, eval_ext=ext)


@family(SITE)
def write_comment(draw: Draw) -> Draft:
    item = post(draw)
    text = draw.choice(
        ("Thank you for this!", "I had the same trouble.", "Good luck with it.", "Tell us more, please.")
    )
    template = draw.choice(
        ("Comment on the post '{{post}}': {{text}}", "Write this comment under '{{post}}': {{text}}")
    )
    plan = (*open_post(item), type_in("Comment", text), click("Post"), stop())
    ext = _stored(said(item, text), free=("comment", "clock"))
    return Draft(template, {"post": item["title"], "text": text}, (HOME,), {}, plan, changes=True, eval_ext=ext)


@family(SITE)
def open_forum_of(draw: Draw) -> Draft:
    item = post(draw)
    template = draw.choice(
        (
            "Go to the forum in which '{{post}}' was posted.",
            "Open the front page of the forum that holds the post '{{post}}'.",
        )
    )
    plan = (*open_post(item), click(item["forum"]), stop())
    return Draft(template, {"post": item["title"]}, (HOME,), ends_on(f"__FORUM__/f/{item['forum']}"), plan)


@family(SITE)
def vote_for_post(draw: Draw) -> Draft:
    item = post(draw)
    way = draw.choice(("Upvote", "Downvote"))
    plan = (*open_post(item), click(way), stop())
    vote = rows(SITE, f"SELECT choice FROM post_vote WHERE post_id = {item['id']}", [1 if way == "Upvote" else -1])
    ext = _stored(vote, free=("post_vote", "post.score"))
    values = {"way": way, "post": item["title"]}
    template = draw.choice(("{{way}} the post '{{post}}'.", "Please {{way}} what {{author}} posted as '{{post}}'."))
    values |= {"author": item["author"]} if "author" in template else {}
    return Draft(template, values, (HOME,), {}, plan, changes=True, eval_ext=ext)


@family(SITE)
def no_such_post(draw: Draw) -> Draft:
    item = post(draw)
    other = post(draw, "p.forum_id != ? AND p.topic != '' AND p.topic != ?", (item["forum_id"], item["topic"]))
    require(item["topic"] and item["topic"] in item["title"])
    title = item["title"].replace(item["topic"], other["topic"])
    taken = draw.rows(SITE, "SELECT 1 FROM post WHERE title = ?", title)
    words = " ".join(f'"{word}"' for word in re.findall(r"\w+", title))
    require(not taken and not draw.rows(SITE, "SELECT 1 FROM post_search WHERE post_search MATCH ?", words))
    template = draw.choice(
        (
            "Save the post '{{post}}'. If there is no post of this title, answer N/A.",
            "Who wrote the post '{{post}}'? Answer N/A if it does not exist.",
        )
    )
    plan = (
        type_in("Search posts", title, enter=True),
        type_in("Search posts", other["topic"], enter=True),
        stop("N/A"),
    )
    return Draft(template, {"post": title}, (HOME,), unachievable(), plan, why_not=f"No post is called {title}.")


@family(SITE, train=False)
def locked_post(draw: Draw) -> Draft:
    """A locked post takes no comments."""
    item = draw.one(
        SITE, "SELECT p.* FROM post p JOIN forum f ON f.id = p.forum_id WHERE p.locked AND f.door_word = ''"
    )
    text = draw.choice(("Thank you for this!", "I had the same trouble."))
    template = "Comment on the post '{{post}}': {{text}} Answer N/A if that is not possible."
    plan = (*open_post(item), stop("N/A"))
    values = {"post": item["title"], "text": text}
    return Draft(template, values, (HOME,), unachievable(), plan, why_not="The post is locked.")


@family(SITE)
def reply_to_person(draw: Draw) -> Draft:
    """One of many reply links is told apart by the name in its row."""
    found = draw.rows(
        SITE,
        "SELECT c.*, u.name FROM comment c JOIN user u ON u.id = c.author_id WHERE c.author_id != ? AND NOT c.deleted",
        ME,
    )
    by_post: dict[int, list[Row]] = {}
    for row in found:
        by_post.setdefault(row["post_id"], []).append(row)
    item = post(draw, "(SELECT COUNT(*) FROM comment c WHERE c.post_id = p.id) BETWEEN 3 AND 8")
    here = by_post.get(item["id"], [])
    names = [row["name"] for row in here]
    target = draw.choice([row for row in here if names.count(row["name"]) == 1])
    text = draw.choice(("I agree with you.", "That helped me.", "Are you sure?"))
    template = draw.choice(
        (
            "Under the post '{{post}}', reply to the comment of {{person}}: {{text}}",
            "Answer what {{person}} wrote about '{{post}}' with: {{text}}",
        )
    )
    plan = (*open_post(item), click(f"Reply to {target['name']}"), type_in("Reply", text), click("Post"), stop())
    reply = rows(
        SITE,
        f"SELECT body, parent_id FROM comment WHERE author_id = {ME} AND post_id = {item['id']}",
        [text, target["id"]],
    )
    values = {"post": item["title"], "person": target["name"], "text": text}
    ext = _stored(reply, free=("comment", "clock"))
    return Draft(template, values, (HOME,), {}, plan, changes=True, eval_ext=ext)


# A fact is found and used


@family(SITE)
def post_fact_in_comment(draw: Draw) -> Draft:
    found = found_in_post(draw, FACTS, "attribute")
    return join(draw, found, comment_on_post(draw, found.value), (HOME,))


@family(SITE)
def post_code_to_author(draw: Draw) -> Draft:
    found = found_in_post(draw, CODES, "code")
    return join(draw, found, message_author(draw, found.value), (HOME,))


@family(SITE, train=False)
def note_to_author(draw: Draw) -> Draft:
    found = found_note(draw)
    return join(draw, found, message_author(draw, found.value), (HOME,))


@family(SITE)
def replied_to(draw: Draw) -> Draft:
    found = found_reply(draw)
    return join(draw, found, comment_on_post(draw, found.value), (HOME,))


@family(SITE)
def letter_as_comment(draw: Draw) -> Draft:
    found = found_letter(draw)
    return join(draw, found, comment_on_post(draw, found.value), (HOME,))


@family(SITE)
def join_with_door_word(draw: Draw) -> Draft:
    """A members' forum is joined with a word that was told in a note that vanishes."""
    forum = draw.one(
        SITE,
        "SELECT f.* FROM forum f JOIN message m ON m.vanishes AND INSTR(m.body, 'door word of ' || f.name || ' ')"
        " WHERE f.door_word != ''",
    )
    other = draw.value(
        SITE,
        "SELECT u.name FROM message m JOIN thread t ON t.id = m.thread_id JOIN user u ON u.id = t.user_id"
        " WHERE m.vanishes AND INSTR(m.body, ?)",
        forum["door_word"],
    )
    word = forum["door_word"]
    c = post(draw, without=word)
    template = draw.choice(
        (
            "{{other}} has sent me the door word of the forum {{forum}} in a note that vanishes. Read it, save the post"
            " '{{post}}', and then subscribe to {{forum}}.",
            "I want to join the forum {{forum}}; its door word is in the note from {{other}}, which can be read once."
            " After reading it save the post '{{post}}', then join.",
        )
    )
    plan = (
        inbox(draw),
        click(other),
        read(word),
        *save(c),
        click("Forums"),
        click(forum["name"]),
        click("Subscribe"),
        type_in("Door word", word, uses=True),
        click("Subscribe"),
        stop(),
    )
    joined = rows(SITE, f"SELECT COUNT(*) FROM subscription WHERE forum_id = {forum['id']}", [1])
    ext = _stored(joined, is_saved(c), free=(*_NOTE, "subscription", "saved", "forum.members"))
    return Draft(
        template,
        {"other": other, "forum": forum["name"], "post": c["title"]},
        (HOME,),
        {},
        plan,
        Needle("code", word, f"the door word of {forum['name']} is {word}.", SITE, f"/f/{forum['name']}/subscribe"),
        changes=True,
        eval_ext=ext,
    )


@family(SITE)
def letter_as_post(draw: Draw) -> Draft:
    """What a letter says becomes the text of a new post."""
    found = found_letter(draw)
    c = post(draw, without=found.value)
    name = draw.value(SITE, "SELECT f.name FROM forum f JOIN subscription s ON s.forum_id = f.id ORDER BY f.id LIMIT 1")
    title = draw.choice(("A note to myself", "For everybody who asked", "Please keep this in mind"))
    template = (
        f"{found.look[0].upper()}{found.look[1:]}. Then save the post '{{{{c}}}}'. Last publish a new post in"
        " {{forum}} with the tag Question and the title {{title}}; its text is just what you looked up."
    )
    plan = (
        *found.plan,
        *save(c),
        click("Commonroom"),
        click("New post"),
        select("Forum", name),
        select("Tag", "Question"),
        type_in("Title", title),
        type_in("Text", found.value, uses=True),
        click("Publish"),
        stop(),
    )
    new = (
        "SELECT f.name, p.title, p.body FROM post p JOIN forum f ON f.id = p.forum_id"
        f" WHERE p.author_id = {ME} AND p.title = '{title}'"
    )
    free = ("post", "saved", "clock", "thread.unread")
    return Draft(
        template,
        {**found.values, "c": c["title"], "forum": name, "title": title},
        (HOME,),
        {},
        plan,
        Needle(found.kind, found.fact, found.note, SITE, "/submit*"),
        changes=True,
        eval_ext=_stored(rows(SITE, new, [name, title, found.value]), is_saved(c), free=free),
    )


# Relations


def _two_posts(draw: Draw, label: str) -> tuple[tuple[Row, str], tuple[Row, str]]:
    a, b = post_with(draw, label), post_with(draw, label)
    require(a[0]["id"] != b[0]["id"] and a[1] != b[1])
    require(a[0]["title"] not in b[0]["title"] and b[0]["title"] not in a[0]["title"])
    return a, b


def _compared(
    draw: Draw, first: tuple[Row, str], second: tuple[Row, str], winner: Row, question: str, note: str, text: str
) -> Draft:
    """Two posts are read, two others saved, and the one that was right gets a comment."""
    fact = second[1]
    c = post(draw, "p.id NOT IN (?, ?)", (first[0]["id"], second[0]["id"]), without=fact)
    d = post(draw, "p.id NOT IN (?, ?, ?)", (first[0]["id"], second[0]["id"], c["id"]), without=fact)
    template = draw.choice(
        (
            f"{question} Read both posts. Then save '{{{{c}}}}' and '{{{{d}}}}', and last comment on the one of the"
            " first two that it is: {{text}}",
            f"{question} When you know, save the posts '{{{{c}}}}' and '{{{{d}}}}'. After that write under the"
            " right one of the two: {{text}}",
        )
    )
    plan = (
        *open_post(first[0]),
        read(first[1]),
        *open_post(second[0]),
        read(second[1]),
        *save(c),
        *save(d),
        type_in("Search posts", winner["title"], enter=True, uses=True),
        click(winner["title"]),
        type_in("Comment", text),
        click("Post"),
        stop(),
    )
    loser = second[0] if winner is first[0] else first[0]
    none = rows(SITE, f"SELECT COUNT(*) FROM comment WHERE author_id = {ME} AND post_id = {loser['id']}", [0])
    ext = _stored(said(winner, text), none, is_saved(c), is_saved(d), free=("comment", "saved", "clock"))
    values = {"a": first[0]["title"], "b": second[0]["title"], "c": c["title"], "d": d["title"], "text": text}
    return Draft(
        template,
        values,
        (HOME,),
        {},
        plan,
        Needle("relation", fact, note, SITE, page_of(d)),
        changes=True,
        eval_ext=ext,
    )


@family(SITE)
def earlier_meeting(draw: Draw) -> Draft:
    a, b = _two_posts(draw, "date")
    when = [_day(value) for _, value in (a, b)]
    winner, loser = (a, b) if when[0] < when[1] else (b, a)
    note = f"{winner[0]['title']} has an earlier date than {loser[0]['title']}."
    question = "Which of the posts '{{a}}' and '{{b}}' names the earlier date?"
    return _compared(draw, a, b, winner[0], question, note, draw.choice(("Count me in.", "I will be there.")))


def _day(text: str) -> date:
    months = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ]
    day, month = text.split()[:2]
    require(month in months)
    return date(2026, months.index(month) + 1, int(day))


@family(SITE)
def longer_thing(draw: Draw) -> Draft:
    label, more = draw.choice((("size", "larger length"), ("distance", "larger distance"), ("weight", "larger weight")))
    a, b = _two_posts(draw, label)
    size = [int(value.split()[0].replace(",", "")) for _, value in (a, b)]
    require(a[1].split()[1:] == b[1].split()[1:])
    winner, loser = (a, b) if size[0] > size[1] else (b, a)
    note = f"{winner[0]['title']} names a {more} than {loser[0]['title']}."
    question = f"Which of the posts '{{{{a}}}}' and '{{{{b}}}}' names the {more}?"
    return _compared(draw, a, b, winner[0], question, note, draw.choice(("I am interested.", "Good to know.")))


@family(SITE, train=False)
def more_points(draw: Draw) -> Draft:
    """The author of the better liked of two posts gets a message."""
    a = post(draw, "p.score > 1 AND u.accepts_mail AND p.author_id NOT IN (SELECT user_id FROM thread)")
    b = post(
        draw,
        "p.score > 1 AND p.score != ? AND p.author_id != ? AND u.accepts_mail"
        " AND p.author_id NOT IN (SELECT user_id FROM thread)",
        (a["score"], a["author_id"]),
    )
    best, other = (a, b) if a["score"] > b["score"] else (b, a)
    fact = f"{b['score']} points"
    c = post(draw, "p.id NOT IN (?, ?)", (a["id"], b["id"]))
    d = post(
        draw, "p.id NOT IN (?, ?, ?) AND p.score NOT IN (?, ?)", (a["id"], b["id"], c["id"], a["score"], b["score"])
    )
    require(c["score"] not in (a["score"], b["score"]))
    text = draw.choice(("Well done!", "I enjoyed your post."))
    template = draw.choice(
        (
            "Search for '{{a}}' and for '{{b}}' and see which post has more points. Save '{{c}}' and '{{d}}'. Then open"
            " the one with more points, go to its author and send the message: {{text}}",
        )
    )
    plan = (
        type_in("Search posts", a["title"], enter=True),
        read(f"{a['score']} points"),
        type_in("Search posts", b["title"], enter=True),
        read(fact),
        *save(c),
        *save(d),
        type_in("Search posts", best["title"], enter=True, uses=True),
        click(best["title"]),
        click(best["author"]),
        click("Send message"),
        type_in("Message", text),
        click("Send"),
        stop(),
    )
    sent = (
        "SELECT t.user_id, m.body FROM message m JOIN thread t ON t.id = m.thread_id WHERE m.mine AND m.body ="
        f" '{text}'"
    )
    values = {"a": a["title"], "b": b["title"], "c": c["title"], "d": d["title"], "text": text}
    note = f"{best['title']} has more points than {other['title']}."
    ext = _stored(
        rows(SITE, sent, [best["author_id"], text]),
        is_saved(c),
        is_saved(d),
        free=("message", "thread", "saved", "clock"),
    )
    return Draft(
        template,
        values,
        (HOME,),
        {},
        plan,
        Needle("relation", fact, note, SITE, page_of(d)),
        changes=True,
        eval_ext=ext,
    )


@family(SITE)
def undo_vote(draw: Draw) -> Draft:
    """What the member once voted for is taken back."""
    item = draw.one(
        SITE,
        "SELECT p.*, v.choice FROM post p JOIN post_vote v ON v.post_id = p.id JOIN forum f ON f.id = p.forum_id"
        " WHERE f.door_word = ''",
    )
    c = post(draw)
    template = draw.choice(
        (
            "Save '{{c}}', then take back my vote for '{{post}}'.",
            "Remove my vote from '{{post}}'; before that save '{{c}}'.",
        )
    )
    plan = (*save(c), *open_post(item), click("Upvote"), stop())
    gone = rows(SITE, f"SELECT COUNT(*) FROM post_vote WHERE post_id = {item['id']}", [0])
    ext = _stored(gone, is_saved(c), free=("post_vote", "post.score", "saved"))
    return Draft(template, {"c": c["title"], "post": item["title"]}, (HOME,), {}, plan, changes=True, eval_ext=ext)
