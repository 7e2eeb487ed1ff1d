"""Which tasks make up `vwa75`: a family each, values pinned for data seed 0 where it matters, and the twins."""

from __future__ import annotations

from typing import Any

from agentkv_envs.tasks.assemble import Spec


def _numbered(site: str, *tasks: tuple[str, dict[str, Any]] | str) -> list[Spec]:
    """A site's tasks in order; "=7" is the twin of the task with the number 7."""
    specs: list[Spec] = []
    for number, task in enumerate(tasks, 1):
        name = f"{site}-{number:03d}"
        if isinstance(task, str) and task.startswith("="):
            original = specs[int(task[1:]) - 1]
            specs.append(Spec(name, original.family, original.pinned, original.task_id))
        else:
            family, pinned = (task, {}) if isinstance(task, str) else task
            specs.append(Spec(name, family, pinned))
    return specs


_SHOPPING = _numbered(
    "shopping",
    ("product_into_cart", {"product": "Harbor Red 2-Slice Toaster"}),
    ("tracking_number", {"date": "2026-02-18"}),
    ("cheapest_of_kind", {"kind": "Speaker"}),
    ("weight_of_product", {"product": "Summit White Travel Backpack"}),
    ("deal_order", {"product": "Cedar Red Delta Kite", "deal": "Spring cleaning"}),
    ("reward_order", {"product": "Harbor Grey 900-Piece Puzzle"}),
    ("change_address", {"street": "Gartenallee 21", "postcode": "10115"}),
    ("swap_wish", {"product": "Harbor Grey 900-Piece Puzzle"}),
    ("longer_warranty", {"sort": "field rain jacket"}),
    (
        "review_from_order",
        {"date": "2026-02-18", "stars": 4, "title": "Clear sound", "text": "The battery lasts two days."},
    ),
    ("thanks_order", {"product": "Summit Red 6 kg Dumbbell"}),
    "cancel_order",
    ("collection_fee", {"product": "tent"}),
    ("sum_of_two", {"a": "Cedar Black Party Speaker", "b": "Maple White Large Wall Clock"}),
    ("size_by_guide", {"product": "Field Black Rain Jacket", "chest": 100}),
    ("reorder_as_gift", {"date": "2025-12-11", "name": "Paul", "note": "Happy birthday"}),
    "not_sold",
    "=5",
    "=11",
    "lighter_of_two",
    "better_rated",
    "warranty_by_message",
    "compared_for_note",
    "=20",
    "=22",
)

_CLASSIFIEDS = _numbered(
    "classifieds",
    "pickup_day",
    "favourite_ad",
    "cheapest_ad",
    "nothing_so_cheap",
    "no_such_offer",
    "new_price",
    "spec_to_seller",
    "route_in_comment",
    "letter_in_comment",
    "same_pickup_day",
    "phone_in_comment",
    "secret_to_seller",
    "ad_spec_as_note",
    "ad_spec_in_comment",
    "post_code_to_seller",
    "counter_offer",
    "newer_of_two",
    "same_seller",
    "better_seller",
    "compared_for_seller",
    "=7",
    "=12",
    "=13",
    "=17",
    "=18",
)

_FORUM = _numbered(
    "forum",
    "fact_in_post",
    "vote_for_post",
    "open_forum_of",
    "no_such_post",
    "locked_post",
    "post_fact_in_comment",
    "letter_as_comment",
    "replied_to",
    "post_code_to_author",
    "note_to_author",
    "wiki_fact_in_comment",
    "product_fact_in_comment",
    "post_fact_as_note",
    "notice_in_comment",
    "letter_as_post",
    "earlier_meeting",
    "longer_thing",
    "more_points",
    "compared_for_comment",
    "=8",
    "=10",
    "=11",
    "=12",
    "=16",
    "=17",
)

VWA75: dict[str, Spec] = {spec.task_id: spec for spec in (*_CLASSIFIEDS, *_FORUM, *_SHOPPING)}
