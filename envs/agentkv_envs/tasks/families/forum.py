"""Tasks of the forum in which a fact is found and needed later."""

from __future__ import annotations

from datetime import date

from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    Needle,
    click,
    family,
    read,
    require,
    select,
    side_by_side,
    stop,
    type_in,
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
    stored,
)
from agentkv_envs.tasks.families.parts import join, rows
from agentkv_envs.tasks.families.shop_parts import Row

# Reading a note that vanishes changes these.
_NOTE = ("thread.unread", "message.body", "message.vanishes")


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
    ext = stored(joined, is_saved(c), free=(*_NOTE, "subscription", "saved", "forum.members"))
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
        eval_ext=stored(rows(SITE, new, [name, title, found.value]), is_saved(c), free=free),
    )


# Relations


def _two_posts(draw: Draw, label: str) -> tuple[tuple[Row, str], tuple[Row, str]]:
    a, b = post_with(draw, label), post_with(draw, label)
    require(a[0]["id"] != b[0]["id"] and a[1] != b[1] and b[1] not in a[0]["body"])
    require(a[0]["title"] not in b[0]["title"] and b[0]["title"] not in a[0]["title"])
    return a, b


def _compared(
    draw: Draw, first: tuple[Row, str], second: tuple[Row, str], winner: Row, question: str, note: str, text: str
) -> Draft:
    """Two posts are read, two others saved, and the one that was right gets a comment."""
    fact = second[1]
    both = side_by_side(*((row["title"], value) for row, value in (first, second)))
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
    ext = stored(said(winner, text), none, is_saved(c), is_saved(d), free=("comment", "saved", "clock"))
    values = {"a": first[0]["title"], "b": second[0]["title"], "c": c["title"], "d": d["title"], "text": text}
    return Draft(
        template,
        values,
        (HOME,),
        {},
        plan,
        Needle("relation", fact, note, SITE, page_of(d), both),
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
    points = side_by_side(*((row["title"], f"{row['score']} points") for row in (a, b)))
    ext = stored(
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
        Needle("relation", fact, note, SITE, page_of(d), points),
        changes=True,
        eval_ext=ext,
    )


@family(SITE)
def undo_vote(draw: Draw) -> Draft:
    """What the member once voted for is taken back."""
    item = draw.one(
        SITE,
        "SELECT p.*, v.choice FROM post p JOIN post_vote v ON v.post_id = p.id JOIN forum f ON f.id = p.forum_id"
        " WHERE f.door_word = '' AND LENGTH(p.title) < 60",
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
    ext = stored(gone, is_saved(c), free=("post_vote", "post.score", "saved"))
    return Draft(template, {"c": c["title"], "post": item["title"]}, (HOME,), {}, plan, changes=True, eval_ext=ext)
