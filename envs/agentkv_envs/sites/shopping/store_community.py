"""What customers write about products: reviews and their votes, questions and answers."""

from __future__ import annotations

from dataclasses import dataclass

from agentkv_envs.sites.shopping.catalogue import TODAY
from agentkv_envs.sites.storage import Refusal, Row, Storage

REVIEWS_PER_PAGE = 4
REVIEW_SORTS = {
    "newest": "created DESC, id DESC",
    "helpful": "helpful DESC, id",
    "highest": "rating DESC, id",
    "lowest": "rating, id",
}


@dataclass(frozen=True)
class ReviewPage:
    """One page of a product's reviews."""

    reviews: list[Row]
    total: int
    page: int
    pages: int


class Community(Storage):
    """Reviews, votes, questions, answers."""

    def reviews(self, product_id: int, sort: str = "newest") -> list[Row]:
        order = REVIEW_SORTS.get(sort, REVIEW_SORTS["newest"])
        return self.all(f"SELECT * FROM review WHERE product_id = ? ORDER BY {order}", product_id)

    def review_page(self, product_id: int, sort: str, page: int) -> ReviewPage:
        rows = self.reviews(product_id, sort)
        pages = max(1, -(-len(rows) // REVIEWS_PER_PAGE))
        page = min(max(page, 1), pages)
        start = (page - 1) * REVIEWS_PER_PAGE
        return ReviewPage(rows[start : start + REVIEWS_PER_PAGE], len(rows), page, pages)

    def add_review(self, product_id: int, rating: int, nickname: str, title: str, detail: str) -> None:
        if not 1 <= rating <= 5:
            raise Refusal("Please choose a rating from 1 to 5.")
        if not (nickname.strip() and title.strip() and detail.strip()):
            raise Refusal("Please fill in nickname, summary and review.")
        if self.one("SELECT 1 FROM review WHERE product_id = ? AND mine", product_id):
            raise Refusal("You have already reviewed this product.")
        self.db.execute(
            "INSERT INTO review (product_id, nickname, rating, title, detail, created, mine)"
            " VALUES (?, ?, ?, ?, ?, ?, 1)",
            (product_id, nickname.strip(), rating, title.strip(), detail.strip(), TODAY.isoformat()),
        )

    def vote_helpful(self, review_id: int) -> Row:
        """Count one vote for a review and return the review."""
        review = self.one("SELECT * FROM review WHERE id = ?", review_id)
        if review is None:
            raise Refusal("We could not find that review.")
        if review["mine"]:
            raise Refusal("You cannot vote for your own review.")
        if review["voted"]:
            raise Refusal(f"You have already voted for the review by {review['nickname']}.")
        self.db.execute("UPDATE review SET helpful = helpful + 1, voted = 1 WHERE id = ?", (review_id,))
        return review

    # Questions

    def questions(self, product_id: int) -> list[Row]:
        """Questions with their answers as text, newest first."""
        return self.all(
            "SELECT q.*, (SELECT GROUP_CONCAT(a.text || ' (' || a.nickname || ')', ' ') FROM"
            " (SELECT * FROM answer WHERE question_id = q.id ORDER BY id) a) AS answers"
            " FROM question q WHERE product_id = ? ORDER BY created DESC, id DESC",
            product_id,
        )

    def question(self, question_id: int) -> Row:
        row = self.one("SELECT * FROM question WHERE id = ?", question_id)
        if row is None:
            raise Refusal("We could not find that question.")
        return row

    def ask(self, product_id: int, nickname: str, text: str) -> None:
        text = text.strip()
        if len(text) < 8:
            raise Refusal("Please write a question of at least 8 characters.")
        asked = self.one(
            "SELECT 1 FROM question WHERE product_id = ? AND LOWER(text) = ?",
            product_id,
            text.lower().rstrip("?") + "?",
        )
        if asked:
            raise Refusal("This question was asked before.")
        self.db.execute(
            "INSERT INTO question (product_id, nickname, text, created, mine) VALUES (?, ?, ?, ?, 1)",
            (product_id, nickname, text, TODAY.isoformat()),
        )

    def answer(self, question_id: int, nickname: str, text: str) -> None:
        question = self.question(question_id)
        if question["mine"]:
            raise Refusal("You cannot answer your own question.")
        if not text.strip():
            raise Refusal("Please write an answer.")
        if self.one("SELECT 1 FROM answer WHERE question_id = ? AND mine", question_id):
            raise Refusal("You have already answered this question.")
        self.db.execute(
            "INSERT INTO answer (question_id, nickname, text, mine) VALUES (?, ?, ?, 1)",
            (question_id, nickname, text.strip()),
        )
