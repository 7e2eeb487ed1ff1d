"""Chat models as the judges of answers that no rule can score, and of pictures."""

from __future__ import annotations

import base64
import re
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv_evals.errors import EvalError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from agentkv_envs.scoring.judges import ImageJudge, TextJudge

_SAME = """Compare an answer with the reference.
Question: {question}
Reference: {reference}
Answer: {answer}
Does the answer say what the reference says, be it in other words? Reply with one word: yes or no."""
_REASON = """A task cannot be done. Compare the reason that was reported with the true one.
Task: {question}
True reason: {reference}
Reported: {answer}
Does the report give the true reason, be it in other words? Reply with one word: yes or no."""
_LOOK = "{question} Answer in a few words."
_NOT_ACHIEVABLE = "N/A: "
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+:[A-Za-z_]\w*")


def check_judge(flag: str, name: str) -> None:
    """Raises what is wrong with a judge's name, before anything is loaded. See `chat_model`."""
    if _MODULE.fullmatch(name):
        _attribute(flag, name)
    elif _is_provider(name):
        if util.find_spec("langchain") is None:
            raise EvalError(f"{flag} {name}: models of a provider need the package langchain; pip install langchain")
    else:
        from agentkv.models import check_model

        check_model(name)


def chat_model(flag: str, name: str) -> BaseChatModel:
    """The chat model of a name.

    Args:
        flag: the option it was given to, for messages.
        name: whatever `--model` takes (a name, a folder, a hub id); "PROVIDER:MODEL" as LangChain's
            `init_chat_model` has it; or "package.module:NAME", a chat model of your own or a function that makes one.

    Raises:
        EvalError: there is no such model, or it cannot be made.
    """
    if _MODULE.fullmatch(name):
        found = _attribute(flag, name)
        return found if hasattr(found, "invoke") else found()
    if _is_provider(name):
        from langchain.chat_models import init_chat_model

        try:
            return init_chat_model(name, temperature=0)
        except Exception as error:  # each provider has errors of its own, such as for a missing key
            raise EvalError(f"{flag} {name}: {(str(error) or type(error).__name__).splitlines()[0]}") from None
    from agentkv.chat_model import ChatAgentKV

    return ChatAgentKV(model=name, temperature=0.0, max_tokens=16)


def text_judge(model: BaseChatModel) -> TextJudge:
    """Asks the model whether an answer says what a reference says."""

    def judge(question: str, reference: str, answer: str) -> bool:
        prompt = _REASON if reference.startswith(_NOT_ACHIEVABLE) else _SAME
        reference = reference.removeprefix(_NOT_ACHIEVABLE)
        said = _ask(model, prompt.format(question=question, reference=reference, answer=answer))
        verdict = re.search(r"\b(yes|no)\b", said.lower())
        if verdict is None:
            raise EvalError(f"it said neither yes nor no, but {said[:60]!r}")
        return verdict.group(1) == "yes"

    return judge


def image_judge(model: BaseChatModel) -> ImageJudge:
    """Asks the model about a picture."""

    def judge(picture: bytes, question: str) -> str:
        mime = "image/png" if picture.startswith(b"\x89PNG") else "image/jpeg"
        data = base64.b64encode(picture).decode()
        image = {"type": "image", "base64": data, "mime_type": mime}
        return _ask(model, [{"type": "text", "text": _LOOK.format(question=question)}, image])

    return judge


def _ask(model: BaseChatModel, content: Any) -> str:
    from langchain_core.messages import HumanMessage

    return str(model.invoke([HumanMessage(content=content)]).text).strip()


def _is_provider(name: str) -> bool:
    return re.match(r"[a-z][a-z0-9_-]+:", name) is not None and not Path(name).exists()


def _attribute(flag: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise EvalError(f"{flag} {name}: {error}") from None
