"""Short tasks of the forum."""

from __future__ import annotations

import re

from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    answer,
    click,
    ends_on,
    family,
    read,
    require,
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
    is_saved,
    open_post,
    post,
    post_with,
    said,
    save,
    stored,
)
from agentkv_envs.tasks.families.parts import rows
from agentkv_envs.tasks.families.shop_parts import Row


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
    ext = stored(is_saved(item), free=("saved",))
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
    ext = stored(said(item, text), free=("comment", "clock"))
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
    ext = stored(vote, free=("post_vote", "post.score"))
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
    require(
        len(title) < 60
        and not taken
        and not draw.rows(SITE, "SELECT 1 FROM post_search WHERE post_search MATCH ?", words)
    )
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
        SITE,
        "SELECT p.* FROM post p JOIN forum f ON f.id = p.forum_id"
        " WHERE p.locked AND LENGTH(p.title) < 60 AND f.door_word = ''",
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
    ext = stored(reply, free=("comment", "clock"))
    return Draft(template, values, (HOME,), {}, plan, changes=True, eval_ext=ext)
