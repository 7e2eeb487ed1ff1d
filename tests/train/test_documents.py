"""Packing, and that documents of one pack know nothing of each other."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkv.errors import Unsupported
from agentkv.train.attention import use_packed_attention
from agentkv.train.documents import Document, as_batch, pack
from agentkv.train.errors import TrainError
from agentkv.train.measure import NextTokens, learned_logits, measure
from tests.runtime_helpers import random_ids, tiny_model

FIRST = Document(tuple(random_ids(30, seed=1)), ((3, 8), (20, 30)), "first")
SECOND = Document(tuple(random_ids(17, seed=2)), ((1, 2), (10, 14)), "second")
THIRD = Document(tuple(random_ids(5, seed=3)), ((4, 5),), "third")


@given(st.lists(st.integers(2, 50), min_size=1, max_size=40), st.integers(50, 120), st.integers())
def test_packs_hold_every_document_once_and_no_pack_is_too_long(sizes: list[int], length: int, seed: int) -> None:
    documents = [Document(tuple(range(size)), ((1, size),), f"{n}") for n, size in enumerate(sizes)]
    packs = pack(documents, length, random.Random(seed))
    assert Counter(d.name for documents in packs for d in documents) == Counter(d.name for d in documents)
    assert max(sum(len(d.ids) for d in documents) for documents in packs) <= length
    # First-fit: no two packs could have been one.
    sums = sorted(sum(len(d.ids) for d in documents) for documents in packs)
    assert len(sums) < 2 or sums[0] + sums[1] > length


def test_the_order_depends_on_the_seed_alone() -> None:
    documents = [Document((1, 2, 3), ((1, 3),), f"{n}") for n in range(20)]
    first, again, other = (pack(documents, 6, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_document_longer_than_a_pack_is_refused_by_name() -> None:
    with pytest.raises(TrainError, match="first has 30 tokens and a pack holds 29; raise --length"):
        pack([FIRST], 29, random.Random(0))


def test_a_document_is_cut_after_its_last_whole_part() -> None:
    assert FIRST.cut(30) is FIRST
    assert FIRST.cut(29) == Document(FIRST.ids[:8], ((3, 8),), "first")
    assert FIRST.cut(7) == Document((), (), "first")


@pytest.mark.parametrize("spans", [((0, 2),), ((4, 4),), ((1, 3), (2, 5)), ((3, 6),), ((4, 5), (1, 2))])
def test_parts_that_are_none_are_refused(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="spans must"):
        Document((1, 2, 3, 4, 5), spans)


def test_a_batch_restarts_positions_and_points_before_what_is_learned() -> None:
    batch = as_batch((SECOND, THIRD))
    assert batch.positions.tolist() == [[*range(17), *range(5)]]
    assert batch.before.tolist() == [0, 9, 10, 11, 12, 20]
    learned = [SECOND.ids[1], *SECOND.ids[10:14], THIRD.ids[4]]
    assert batch.targets.tolist() == learned
    assert (batch.spans, batch.spans_of, batch.lengths) == ((1, 4, 1), (2, 1), (17, 5))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "phi3", "gpt2"])
def test_in_a_pack_each_document_gets_the_logits_that_it_gets_alone(architecture: str) -> None:
    plain, packed = tiny_model(architecture), tiny_model(architecture)
    use_packed_attention(packed)
    batch = as_batch((FIRST, SECOND, THIRD))
    with torch.no_grad():
        ours = learned_logits(packed, batch)
        alone = []
        for document in (FIRST, SECOND, THIRD):
            logits = plain(torch.tensor([document.ids])).logits[0].float()
            alone.append(logits[[index - 1 for start, end in document.spans for index in range(start, end)]])
    torch.testing.assert_close(ours, torch.cat(alone), atol=1e-5, rtol=1e-5)


def test_nothing_of_one_document_reaches_the_gradient_of_another() -> None:
    model = tiny_model("llama")
    use_packed_attention(model)
    silent = Document(FIRST.ids, (), "silent")
    embedded = model.get_input_embeddings()
    seen: list[torch.Tensor] = []
    embedded.register_forward_hook(lambda module, args, out: (out.retain_grad(), seen.append(out))[1])
    embedded.weight.requires_grad_(True)
    NextTokens(model).loss(as_batch((silent, SECOND))).backward()
    gradient = seen[0].grad
    assert gradient is not None
    assert gradient[0, : len(silent.ids)].abs().max() == 0
    assert gradient[0, len(silent.ids) :].abs().max() > 0


def test_attention_that_is_not_plain_is_refused() -> None:
    model = tiny_model("gemma2")
    use_packed_attention(model)
    with pytest.raises(Unsupported, match="slides over 20 tokens"):
        NextTokens(model).loss(as_batch((FIRST,)))
    with pytest.raises(Unsupported, match="softcap"):
        NextTokens(model).loss(as_batch((THIRD,)))


def test_figures_count_parts_and_documents_that_are_right_throughout() -> None:
    model = tiny_model("llama")
    use_packed_attention(model)
    ids = list(FIRST.ids)
    with torch.no_grad():
        # What the model would say after each token; the second part gets one token that it would not.
        for index in (3, 4, 5, 20, 21):
            before = as_batch((Document(tuple(ids), ((index, index + 1),)),))
            ids[index] = int(learned_logits(model, before).argmax())
    wrong = list(ids)
    wrong[21] = (wrong[21] + 1) % 90
    right_throughout = Document(tuple(ids), ((3, 6), (20, 22)), "right")
    one_wrong = Document(tuple(wrong), ((3, 6), (20, 22)), "wrong")
    found = measure(model, [(right_throughout, one_wrong)], torch.device("cpu"))
    assert (found.tokens, found.spans, found.documents) == (10, 4, 2)
    assert found.token_accuracy == pytest.approx(0.9)
    assert found.span_accuracy == pytest.approx(0.75)
    assert found.document_accuracy == pytest.approx(0.5)
    with torch.no_grad():
        expected = float(NextTokens(model).loss(as_batch((right_throughout, one_wrong)))) / 10
    assert found.loss == pytest.approx(expected)
