"""`agentkv chat`: its commands, its sessions and its screen; mostly over a tiny random model."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from transformers import LlamaConfig, LlamaForCausalLM

from agentkv.chat.sessions import KVSettings
from agentkv.cli.chat import _converse
from agentkv.cli.chat_commands import COMMANDS, run_command
from agentkv.cli.chat_screen import PlainScreen, TerminalScreen, memory_line, wrapped
from agentkv.cli.chat_talks import Memory, Step, Talks
from agentkv.engine import Engine, SamplingParams
from agentkv.errors import AgentKVError, BudgetTooSmall, ContextOverflow, SessionFileError, UnknownName
from tests.chat.chat_fakes import byte_tokenizer


@pytest.fixture(scope="module")
def engine():
    tokenizer = byte_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 1024}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), eos_token_id=257, **sizes, **heads)).eval()
    return Engine(model, tokenizer, "tiny")


@pytest.fixture
def talks(engine):
    params = SamplingParams(max_tokens=8, min_tokens=8)
    return Talks(engine, KVSettings("full"), params, "chat", "Be brief.")


def say(talks, text, cancel=None):
    """The reply, and what is told of it."""
    steps = list(talks.say(text, cancel or threading.Event()))
    return "".join(step.text for step in steps), steps[-1].facts


def held(talks):
    """All that a refused command must leave as it is."""
    session = talks.live(talks.current)
    return talks.current, list(session.kv.ledger), session.kv.logical_length, session.kv.closed


# --- commands ---


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("/polcy h2o", UnknownName, "unknown command /polcy; did you mean /policy?"),
        ("/zzz", UnknownName, "/help lists them"),
        ("/", UnknownName, "/help lists them"),
        ("/fork", AgentKVError, "/fork NAME: "),
        ("/quit now", AgentKVError, "/quit takes nothing after it"),
    ],
)
def test_what_is_no_command_is_refused_in_a_sentence(talks, line, error, words) -> None:
    with pytest.raises(error, match=re.escape(words)):
        run_command(talks, line)


def test_help_shows_every_command_within_80_columns(talks) -> None:
    lines = run_command(talks, "/help").splitlines()
    assert [line.split()[0] for line in lines] == [f"/{command.name}" for command in COMMANDS]
    assert max(map(len, lines)) <= 80


def test_commands_and_messages_come_through_a_pipe(talks, monkeypatch, capsys, tmp_path) -> None:
    saved = tmp_path / "with blanks.safetensors"
    typed = ["/kv", "hello", "/nope", "/explain", f"/save {saved}", "/fork b", "/session", "/quit", "never read"]
    lines = iter(typed)
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    _converse(talks, PlainScreen())
    out, err = capsys.readouterr()
    assert out.startswith(talks.current.turns[-1].content)
    assert [turn.role for turn in talks.current.turns] == ["system", "user", "assistant"]
    assert saved.exists()
    for words in ("say something first", "[full: KV", "unknown command /nope", "policy full, ", "* b: full, no budget"):
        assert words in err
    assert next(lines) == "never read"


# --- sessions ---


def test_another_policy_goes_on_with_the_same_tokens(talks) -> None:
    """With room for everything every policy is exact, so the reply must be that of the session that was not moved."""
    say(talks, "one")
    ledger = list(talks.live(talks.current).kv.ledger)
    run_command(talks, "/fork moved")
    told = run_command(talks, "/policy h2o")
    assert told == f"h2o, no budget; the next reply reads its {len(ledger)} tokens again"
    assert talks.live(talks.current).kv.ledger == ledger
    moved, facts = say(talks, "two")
    assert (facts["session"], facts["policy"], facts["reused_tokens"]) == ("continued", "h2o", 0)
    run_command(talks, "/session chat")
    assert say(talks, "two")[0] == moved


def test_a_budget_is_set_and_lifted(talks) -> None:
    say(talks, "one")
    run_command(talks, "/policy streaming-llm")
    run_command(talks, "/budget 64")
    _, facts = say(talks, "a message that is longer than the budget has room for, so that something has to go")
    assert facts["budget"] == "64"
    assert facts["evicted_tokens"] > 0
    run_command(talks, "/budget none")
    assert talks.current.settings == KVSettings("streaming-llm")


@pytest.mark.parametrize(
    ("line", "error"),
    [("/policy nope", UnknownName), ("/budget 32", ContextOverflow), ("/budget much", AgentKVError)],
)
def test_a_policy_or_budget_that_cannot_be_changes_nothing(talks, line, error) -> None:
    say(talks, "one")
    before = held(talks)
    with pytest.raises(error):
        run_command(talks, line)
    assert held(talks) == before


def test_a_budget_too_small_for_the_policy_is_refused_before_a_word_is_said(talks) -> None:
    run_command(talks, "/policy conf-kv")
    with pytest.raises(BudgetTooSmall):
        run_command(talks, "/budget 1")
    assert talks.current.settings == KVSettings("conf-kv")


@pytest.mark.parametrize("change", [None, "/policy h2o"])
def test_a_saved_session_goes_on_with_its_messages(talks, engine, tmp_path, change) -> None:
    """Also one that has not computed anything under its new policy yet."""
    say(talks, "one")
    if change:
        run_command(talks, change)
    run_command(talks, f"/save {tmp_path / 'chat.safetensors'}")
    turns = talks.current.turns
    expected, _ = say(talks, "two")
    other = Talks(engine, KVSettings("tova", 512), SamplingParams(max_tokens=8, min_tokens=8), "chat", None)
    run_command(other, f"/load {tmp_path / 'chat.safetensors'}")
    assert (other.current.name, other.current.turns) == ("chat-2", turns)
    assert other.current.settings.policy == ("h2o" if change else "full")
    reply, facts = say(other, "two")
    assert reply == expected
    assert facts["session"] == "continued"
    assert (facts["reused_tokens"] == 0) == bool(change)


def test_files_that_are_no_session_lose_nothing(talks, engine, tmp_path) -> None:
    say(talks, "one")
    whole, damaged, bare, text = (tmp_path / name for name in ("whole", "damaged", "bare", "notes.txt"))
    talks.save(whole)
    content = bytearray(whole.read_bytes())
    content[-9] ^= 1
    damaged.write_bytes(content)
    engine.save_session(engine.open_session(), bare)
    text.write_text("my only copy")
    before = held(talks)
    for path in (damaged, bare, text, tmp_path / "missing"):
        with pytest.raises(SessionFileError, match=str(path)):
            talks.load(path)
        assert held(talks) == before
    with pytest.raises(SessionFileError, match="choose another name"):
        talks.save(text)
    assert text.read_text() == "my only copy"
    talks.save(whole)  # a session may be written over


def test_forks_go_their_own_ways(talks) -> None:
    say(talks, "one")
    talks.fork("b")
    say(talks, "two")
    talks.go_to("chat")
    assert [len(talk.turns) for talk in talks] == [3, 5]
    _, facts = say(talks, "three")
    assert (facts["session_id"], facts["session"]) == ("chat", "continued")
    with pytest.raises(AgentKVError, match="there is a session 'b' already"):
        talks.fork("b")
    with pytest.raises(AgentKVError, match="no session 'c'; there are: chat, b"):
        talks.go_to("c")


def test_a_message_that_does_not_fit_leaves_the_conversation(talks) -> None:
    say(talks, "one")
    before = held(talks)
    with pytest.raises(ContextOverflow):
        say(talks, "x" * 2000)
    assert held(talks) == before
    assert say(talks, "two")[1]["session"] == "continued"


def test_a_reply_can_be_ended_at_any_time(talks) -> None:
    cancel = threading.Event()
    cancel.set()
    reply, facts = say(talks, "one", cancel)
    assert (reply, facts["finish_reason"]) == ("", "cancelled")
    cancel = threading.Event()
    for step in talks.say("two", cancel):
        if step.memory.confidence is not None:
            cancel.set()
    assert step.facts["finish_reason"] == "cancelled"
    assert step.facts["session"] == "continued"
    assert 0 < step.facts["generated_tokens"] < 8
    assert say(talks, "three")[1]["session"] == "continued"


def test_confidence_is_measured_under_every_policy(talks) -> None:
    first, *middle, last = talks.say("one", threading.Event())
    assert first.memory.reading > 0
    measured = [step.memory.confidence for step in middle]
    assert all(0.1 < value <= 1 for value in measured)
    assert last.memory.confidence == pytest.approx(sum(measured) / len(measured))


# --- the screen ---


def shown(output: str) -> list[str]:
    """The lines that are left in a terminal that knows how to go up and how to erase a line."""
    lines, row, column = [""], 0, 0
    for up, erase, end, plain in re.findall(r"\x1b\[(\d*)A|\x1b\[(2)K|\x1b\[[?\d;]*(.)|([^\x1b])", output, re.DOTALL):
        if up or (erase and not end):
            row -= int(up or 0)
            lines[row] = "" if erase else lines[row]
        elif plain == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif plain == "\r":
            column = 0
        elif plain:
            lines[row] = lines[row][:column].ljust(column) + plain + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def test_a_reply_stays_once_and_the_line_of_memory_last() -> None:
    words = "All happy families are alike; each unhappy family is unhappy in its own way.\n\n" * 3 + "\x1b[31mThe end."
    memory = Memory("conf-kv", 7 << 20, 8 << 20, 12, 3, confidence=0.5)
    steps = [Step(words[n : n + 3], memory) for n in range(0, len(words), 3)] + [Step("", memory, {"done": True})]
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=40, color_system="standard", _environ={})
    TerminalScreen(console).reply(lambda cancel: steps)
    paragraph = ["All happy families are alike; each", "unhappy family is unhappy in its own", "way.", ""]
    expected = [*paragraph * 3, "[31mThe end.", "conf-kv  KV 7.0/8.0 MiB  12 evicted", ""]
    assert shown(out.getvalue()) == expected
    assert "conf-kv" in out.getvalue().partition("unhappy")[0]  # while the reply came


@given(text=st.text("ab 界\n", max_size=60), width=st.integers(2, 9))
def test_wrapping_does_not_depend_on_how_text_arrives(text, width) -> None:
    at_once, rest = wrapped(text, width)
    one_by_one, line = [], ""
    for character in text:
        complete, line = wrapped(line + character, width)
        one_by_one += complete
    assert (one_by_one, line) == (at_once, rest)
    assert all(cell_len(each) <= width for each in [*at_once, rest])
    assert "".join([*at_once, rest]).replace(" ", "") == text.replace(" ", "").replace("\n", "")


@pytest.mark.parametrize(
    ("memory", "line"),
    [
        (Memory("full", 3 << 20, None, 0, 0, reading=40), "full  KV 3.0 MiB  0 evicted  reading 40 tokens"),
        (
            Memory("a/long/path/of/a/recipe.yaml", 2 << 30, 3 << 30, 123456, 1234567, confidence=0.5),
            "…f/a/recipe.yaml  KV 2.0/3.0 GiB  123456 evicted  confidence 0.50",
        ),
    ],
)
def test_the_line_of_memory_fits(memory, line) -> None:
    assert memory_line(memory, done=False, width=80) == line


@pytest.mark.model
def test_a_terminal_of_80_columns_shows_the_live_line(tmp_path: Path) -> None:
    control, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    command = [sys.executable, "-m", "agentkv", "chat", "--policy", "conf-kv", "--max-tokens", "30"]
    chat = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    os.write(control, b"What is the capital of France? Answer briefly.\n/budget 1\n/quit\n")
    output = b""
    while chunk := _read(control):
        output += chunk
    assert chat.wait(timeout=60) == 0
    lines = shown(output.decode().replace("\r\n", "\n"))
    assert lines.count("The capital of France is Paris.") == 1
    (memory,) = [line for line in lines if line.startswith("conf-kv  KV")]
    assert "mean confidence 0." in memory
    assert any(line.startswith("agentkv: the budget of 1 tokens") for line in lines)
    assert max(map(len, lines)) <= 80


def _read(control: int) -> bytes:
    try:
        return os.read(control, 4096)
    except OSError:  # the other end was closed
        return b""
