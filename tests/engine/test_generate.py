"""The decode loop: events, ends, constraints, cancellation, sessions."""

from __future__ import annotations

import gc
import sys
import threading

import psutil
import pytest
import torch

from agentkv.cache.facts import Role
from agentkv.engine import Engine, SamplingParams
from agentkv.engine.loading import as_device, choose_dtype
from agentkv.errors import AgentKVError, ContextOverflow, ModelError, PoolExhausted, UnknownName, Unsupported
from tests.runtime_helpers import VOCABULARY, WINDOW, random_ids, tiny_engine, tiny_model


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine(dtype=torch.float32)


def reply(engine: Engine, session, ids: list[int], **params):
    constraint, cancel = params.pop("constraint", None), params.pop("cancel", None)
    return list(engine.generate(session, ids, SamplingParams(**params), constraint, cancel))


class Script:
    """A constraint that allows one fixed sequence, and forces it from some token on."""

    def __init__(self, sequence: list[int], forced_from: int):
        self.sequence, self.at, self.forced_from = sequence, 0, forced_from

    @property
    def done(self) -> bool:
        return self.at == len(self.sequence)

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        out = torch.full_like(logits, float("-inf"))
        out[self.sequence[self.at]] = logits[self.sequence[self.at]]
        return out

    def accept(self, token_id: int) -> None:
        assert token_id == self.sequence[self.at]
        self.at += 1

    def forced(self) -> list[int]:
        return self.sequence[self.at : self.at + 3] if self.at >= self.forced_from else []


def test_events_carry_tokens_text_and_one_reason(engine: Engine) -> None:
    session = engine.open_session()
    events = reply(engine, session, random_ids(8), max_tokens=6, min_tokens=6)
    tokens = [token for event in events for token in event.token_ids]
    assert len(tokens) == 6
    assert "".join(event.text for event in events) == "".join(f"{token} " for token in tokens)
    assert [event.finish_reason for event in events] == [None] * 5 + ["length"]
    assert session.ledger[8:] == tokens
    assert session.timings.generated_tokens == 6
    assert session.timings.new_tokens == 8
    assert session.timings.reused_tokens == 0


def test_a_second_call_computes_only_what_is_new(engine: Engine) -> None:
    session = engine.open_session()
    reply(engine, session, random_ids(50), max_tokens=4, min_tokens=4)
    before = session.logical_length
    reply(engine, session, random_ids(7), max_tokens=3, min_tokens=3)
    assert session.timings.reused_tokens == before == 53
    # The last token of the first reply was never run: it goes in with the new ones.
    assert session.timings.new_tokens == 1 + 7


def test_the_end_of_sequence_stops_and_is_not_text(engine: Engine) -> None:
    session = engine.open_session()
    events = reply(engine, session, random_ids(8), constraint=Script([5, 1, 7], forced_from=9))
    assert events[-1].finish_reason == "stop"
    assert "".join(event.text for event in events) == "5 "
    assert session.ledger[-2:] == [5, 1]


def test_forced_tokens_take_no_forward_pass_of_their_own(engine: Engine) -> None:
    sequence = random_ids(12)
    forced, sampled = engine.open_session(), engine.open_session()
    events = reply(engine, forced, [9], constraint=Script(sequence, forced_from=2))
    assert forced.ledger == [9, *sequence]
    assert events[-1].finish_reason == "stop"
    assert forced.timings.forward_passes == 2
    reply(engine, sampled, [9], constraint=Script(sequence, forced_from=99))
    assert sampled.timings.forward_passes == 12
    # The same tokens, the same cache.
    ends = []
    for session in (forced, sampled):
        session.ledger.append(5)
        ends.append(engine.compute_waiting(session).clone())
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-4)


def test_what_a_grammar_forces_first_goes_in_with_the_prompt(engine: Engine) -> None:
    session = engine.open_session()
    sequence = random_ids(5)
    reply(engine, session, random_ids(9), constraint=Script(sequence, forced_from=0))
    assert session.ledger[9:] == sequence
    assert session.timings.forward_passes == 0


def test_max_tokens_cut_forced_tokens_too(engine: Engine) -> None:
    session = engine.open_session()
    events = reply(engine, session, [9], constraint=Script(random_ids(12), forced_from=1), max_tokens=4)
    assert events[-1].finish_reason == "length"
    assert len(session.ledger) == 5


def test_a_stop_string_ends_the_reply(engine: Engine) -> None:
    session = engine.open_session()
    events = reply(engine, session, [9], constraint=Script([5, 6, 7, 8], forced_from=9), stop=("6 7",))
    assert events[-1].finish_reason == "stop"
    assert "".join(event.text for event in events) == "5 "
    (own,) = (span for span in session.cache.facts.spans if span.role == "action")
    assert (own.start, own.end) == (1, len(session.ledger)), "what was taken back is nobody's"


def test_cancelling_ends_within_a_token_and_keeps_the_session(engine: Engine) -> None:
    session, cancel, seen = engine.open_session(), threading.Event(), []
    for event in engine.generate(session, random_ids(8), SamplingParams(max_tokens=50, min_tokens=50), None, cancel):
        seen.append(event)
        if len(seen) == 3:
            cancel.set()
    assert [event.finish_reason for event in seen] == [None] * 3 + ["cancelled"]
    assert reply(engine, session, random_ids(3), max_tokens=2, min_tokens=2)[-1].finish_reason == "length"


def test_cancelling_between_prefill_chunks_loses_nothing(engine: Engine) -> None:
    session, cancel = engine.open_session("streaming-llm", 32), threading.Event()
    cancel.set()
    ids = random_ids(100)
    assert reply(engine, session, ids, cancel=cancel)[-1].finish_reason == "cancelled"
    assert session.ledger == ids
    assert reply(engine, session, [], max_tokens=1)[-1].finish_reason == "length"
    assert session.logical_length == 100


def test_closing_the_iterator_frees_the_session(engine: Engine) -> None:
    session = engine.open_session()
    events = engine.generate(session, random_ids(8), SamplingParams(max_tokens=50, min_tokens=50))
    next(events)
    assert session.busy
    with pytest.raises(AgentKVError, match="in use by another call"):
        list(engine.generate(session, [5]))
    events.close()
    assert not session.busy
    reply(engine, session, [5], max_tokens=1)


def test_a_prompt_beyond_the_window_is_refused_and_changes_nothing(engine: Engine) -> None:
    session = engine.open_session()
    reply(engine, session, random_ids(20), max_tokens=2, min_tokens=2)
    before = list(session.ledger)
    with pytest.raises(ContextOverflow, match=f"needs {WINDOW + 22} tokens but the model's window holds {WINDOW}"):
        engine.generate(session, random_ids(WINDOW))
    assert session.ledger == before


def test_nothing_to_compute_is_an_error(engine: Engine) -> None:
    with pytest.raises(AgentKVError, match="at least one new token"):
        engine.generate(engine.open_session(), [])


def test_a_closed_session_is_refused_and_gives_its_pages_back(engine: Engine) -> None:
    used = engine.arena.used_pages
    session = engine.open_session()
    reply(engine, session, random_ids(30), max_tokens=1)
    assert engine.arena.used_pages > used
    session.close()
    session.close()
    assert engine.arena.used_pages == used
    with pytest.raises(AgentKVError, match="closed"):
        list(engine.generate(session, [5]))


def test_closing_during_a_reply_ends_it_with_one_error_and_leaks_nothing(engine: Engine) -> None:
    gc.collect()
    used = engine.arena.used_pages
    session = engine.open_session()
    stream = engine.generate(session, random_ids(40), SamplingParams(max_tokens=9, min_tokens=9))
    next(stream)
    session.close()
    assert session.closed
    with pytest.raises(AgentKVError, match="the session was closed"):
        list(stream)
    assert engine.arena.used_pages == used


def test_overlapping_calls_cannot_push_the_ledger_beyond_the_window(engine: Engine) -> None:
    session = engine.open_session()
    first, second = (engine.generate(session, random_ids(150), SamplingParams(max_tokens=1)) for _ in range(2))
    list(first)
    with pytest.raises(ContextOverflow):
        list(second)
    assert len(session.ledger) == 151


def test_pages_returned_while_others_are_taken_are_handed_out_once(engine: Engine) -> None:
    """A finalizer may run between any two lines of allocate."""
    arena = tiny_engine(dtype=torch.float32).arena
    held = arena.allocate(30)
    taken: list[int] = []

    def interrupt(frame, event, arg):
        nonlocal held
        if event == "line" and frame.f_code.co_name == "allocate" and len(held):
            arena.release(held[:5])
            held = held[5:]
        return interrupt

    sys.settrace(interrupt)
    try:
        for _ in range(8):
            taken.extend(arena.allocate(4).tolist())
    finally:
        sys.settrace(None)
    assert len(set(taken)) == len(taken) == 32
    assert not set(taken) & set(held.tolist())
    assert arena.free_pages == arena.pages - 1 - 32 - len(held)


def test_tokens_that_only_complete_a_stop_string_leave_the_ledger(engine: Engine) -> None:
    session = engine.open_session()
    reply(engine, session, [9], constraint=Script([5, 6, 7, 8], forced_from=9), stop=(" 7",))
    assert session.ledger == [9, 5, 6]


def test_a_forgotten_session_gives_its_pages_back(engine: Engine) -> None:
    gc.collect()
    used = engine.arena.used_pages
    session = engine.open_session()
    reply(engine, session, random_ids(30), max_tokens=1)
    assert engine.arena.used_pages > used
    del session
    gc.collect()
    assert engine.arena.used_pages == used


def test_a_full_pool_is_an_error_that_can_be_mended() -> None:
    engine = tiny_engine(dtype=torch.float32, kv_pool="20KiB")
    first, second = engine.open_session(), engine.open_session()
    reply(engine, first, random_ids(60), max_tokens=1)
    with pytest.raises(PoolExhausted, match="close idle sessions"):
        reply(engine, second, random_ids(60), max_tokens=1)
    first.close()
    assert reply(engine, second, [], max_tokens=1)[-1].finish_reason == "length"
    assert second.logical_length == 60


def test_what_no_pool_could_hold_is_refused_before_it_is_computed() -> None:
    engine = tiny_engine(dtype=torch.float32, kv_pool="20KiB")
    session = engine.open_session()
    with pytest.raises(PoolExhausted, match="the whole KV pool has"):
        engine.generate(session, random_ids(100))
    assert session.ledger == []
    assert reply(engine, engine.open_session("streaming-llm", "16KiB"), random_ids(100), max_tokens=1)


def test_a_failed_forward_pass_closes_the_session(engine: Engine, monkeypatch) -> None:
    """Slots were taken whose keys were never written: using them would be silent corruption."""
    session = engine.open_session()

    def broken(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(engine._paged, "forward", broken)
    with pytest.raises(MemoryError):
        reply(engine, session, random_ids(8))
    assert session.closed


def test_two_sessions_take_turns_without_disturbing_each_other(engine: Engine) -> None:
    params = SamplingParams(max_tokens=12, min_tokens=12)
    alone = [
        [t for e in engine.generate(engine.open_session("h2o", 32), random_ids(60, seed), params) for t in e.token_ids]
        for seed in (1, 2)
    ]
    sessions = [engine.open_session("h2o", 32) for _ in range(2)]
    streams = [engine.generate(s, random_ids(60, seed), params) for s, seed in zip(sessions, (1, 2), strict=True)]
    mixed: list[list[int]] = [[], []]
    for _ in range(12):
        for tokens, stream in zip(mixed, streams, strict=True):
            tokens.extend(next(stream).token_ids)
    assert mixed == alone


class TestLoading:
    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(UnknownName, match="smollm2-135m"):
            Engine.load("no-such-model")

    def test_a_broken_folder_is_one_line(self, tmp_path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "llama"')
        with pytest.raises(ModelError, match="cannot load the model"):
            Engine.load(str(tmp_path))

    def test_a_local_folder_works(self, tmp_path) -> None:
        model = tiny_model("llama", torch.float32)
        model.save_pretrained(tmp_path)
        _tiny_tokenizer().save_pretrained(tmp_path)
        engine = Engine.load(str(tmp_path), dtype="float32")
        assert engine.context_window == WINDOW
        assert Engine.shared(str(tmp_path)) is Engine.shared(str(tmp_path))
        assert len(reply(engine, engine.open_session(), random_ids(5), max_tokens=3, min_tokens=3)) == 3

    def test_architectures_that_cannot_be_handled_are_refused_before_their_weights_are_read(self, tmp_path) -> None:
        from transformers import MambaConfig

        MambaConfig().save_pretrained(tmp_path)
        with pytest.raises(Unsupported, match="mamba is not supported"):
            Engine.load(str(tmp_path))

    @pytest.mark.parametrize(
        ("device", "reason"),
        [("foo", "it is none of cpu, cuda and cuda:N$"), ("cuda:x", "it is none of"), ("cuda:99", "")],
    )
    def test_devices_that_are_not_here_are_refused(self, device: str, reason: str) -> None:
        with pytest.raises(ModelError, match=f"device '{device}' cannot be used here: {reason}"):
            as_device(device)

    def test_dtypes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cpu = torch.device("cpu")
        monkeypatch.setattr("agentkv.engine.loading.multiplies_fast", lambda dtype, device: False)
        # What widens its products itself keeps the checkpoint's bytes; the rest is faster in float32.
        assert choose_dtype("auto", torch.bfloat16, cpu, "llama") is torch.bfloat16
        assert choose_dtype("auto", torch.float16, cpu, "llama") is torch.float32
        assert choose_dtype("auto", torch.bfloat16, cpu, "gpt2") is torch.float32
        assert choose_dtype("bfloat16", None, cpu, "gpt2") is torch.bfloat16
        monkeypatch.setattr("agentkv.engine.loading.multiplies_fast", lambda dtype, device: True)
        assert choose_dtype("auto", torch.bfloat16, cpu, "gpt2") is torch.bfloat16
        assert choose_dtype("float32", torch.bfloat16, cpu) is torch.float32
        assert choose_dtype("auto", None, cpu) is torch.float32
        with pytest.raises(ModelError, match="unknown dtype 'int4'"):
            choose_dtype("int4", None, cpu)

    def test_pools_in_bytes_tokens_and_shares(self) -> None:
        token = tiny_engine().layout.token_bytes
        assert tiny_engine(kv_pool="1MiB").arena.pages == 2**20 // tiny_engine().layout.page_bytes
        assert 512 * token <= tiny_engine(kv_pool=512).arena.pages * tiny_engine().layout.page_bytes <= 600 * token
        share = tiny_engine(kv_pool="0.1%").arena.pages * tiny_engine().layout.page_bytes
        assert 0.0005 < share / psutil.virtual_memory().available < 0.002
        with pytest.raises(AgentKVError, match="not understood"):
            tiny_engine(kv_pool="lots")


def _tiny_tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({str(n): n for n in range(VOCABULARY)}, unk_token="0"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="1")


@pytest.mark.parametrize("token", [VOCABULARY, -1, 1.5, "a", None, True])
def test_a_token_that_the_model_does_not_have_is_refused_and_changes_nothing(engine: Engine, token: object) -> None:
    one, other = (engine.open_session("h2o", 40) for _ in range(2))
    for refused in (
        lambda: engine.generate(one, [1, token]),
        lambda: engine.decode_batch([one, other], [1, token]),
        lambda: engine.generate_batch([one, other], [[1], [token]]),
    ):
        with pytest.raises(AgentKVError, match="no token of the model"):
            refused()
    assert one.ledger == other.ledger == []
    assert {one.closed, other.closed} == {False}
    one.close()
    other.close()


@pytest.mark.parametrize("roles", [[(Role.TASK, 4)], [(Role.TASK, 2), (Role.ACTION, 2)], [(Role.TASK, 1.5)]])
def test_roles_of_more_tokens_than_there_are_or_of_parts_are_refused(engine: Engine, roles: list) -> None:
    session = engine.open_session("full")
    with pytest.raises(AgentKVError, match="tokens"):
        engine.generate(session, random_ids(3), roles=roles)
    assert session.ledger == session.cache.facts.spans == []
    session.close()
