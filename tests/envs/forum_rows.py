"""What the tests of the forum share: how to find things in its database."""

from __future__ import annotations

from agentkv_envs.sites.forum.content import ME
from agentkv_envs.sites.forum.store import Store
from agentkv_envs.sites.storage import Row
from agentkv_envs.tasks.schema import read_task
from agentkv_envs.types import Task

FORM = {"forum": "allotment", "tag": "Question", "title": "When to sow?", "body": "I have no idea.", "url": ""}


def task_at(url: str, *more_sites: str) -> Task:
    checks = {"eval_types": ["string_match"], "reference_answers": {"must_include": ["x"]}}
    sites = ["forum", *more_sites]
    return read_task({"sites": sites, "task_id": "try-1", "intent": "x", "start_url": url, "eval": checks}, "test")


def post_of(store: Store, where: str) -> Row:
    """The first post that a condition holds for."""
    row = store.one(f"SELECT p.id, f.name FROM post p JOIN forum f ON f.id = p.forum_id WHERE {where} LIMIT 1")
    assert row is not None
    post = store.post(row["name"], row["id"])
    assert post is not None
    return post


def comment_of(store: Store, where: str) -> Row:
    row = store.one(f"SELECT id, post_id FROM comment WHERE {where} LIMIT 1")
    assert row is not None
    comment = store.comment(row["post_id"], row["id"])
    assert comment is not None
    return comment


def forum_of(store: Store, name: str) -> Row:
    forum = store.forum(name)
    assert forum is not None
    return forum


def user_of(store: Store, where: str) -> Row:
    row = store.one(f"SELECT name FROM user WHERE {where} LIMIT 1")
    assert row is not None
    user = store.user(row["name"])
    assert user is not None
    return user


def others(store: Store) -> Row:
    """A post of somebody else that takes comments."""
    return post_of(store, f"p.author_id != {ME} AND NOT locked AND p.id NOT IN (SELECT post_id FROM post_vote)")
