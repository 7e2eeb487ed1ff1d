"""`ChatAgentKV`: a LangChain chat model whose sessions keep their KV inside a budget."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langchain_core.utils import from_env
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator, model_validator

from agentkv.chat.call import ChatRequest
from agentkv.chat.host import ChatHost, host_of
from agentkv.chat.messages import to_turns
from agentkv.chat.profile import model_profile
from agentkv.chat.pump import arun, run
from agentkv.chat.replies import to_chunk, to_result
from agentkv.chat.sessions import KVSettings
from agentkv.chat.structured import check_form, json_schema_of, output_parser, response_format, structured
from agentkv.chat.turns import with_tools
from agentkv.errors import AgentKVError, Unsupported
from agentkv.tools import ReplyForm
from agentkv.tools.calls import parse_tools

if TYPE_CHECKING:
    from agentkv.engine import Engine, Explanation

_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "seed")
_FORM = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "grammar", "tool_call_bias")
_PER_CALL = (*_SAMPLING, "stop", *_FORM, "session_id", "model")


class ChatAgentKV(BaseChatModel):
    """A local model as a LangChain chat model, with a KV policy and budget.

    A call continues a session, so that only new messages are prefilled:

    - with `config={"configurable": {"session_id": "..."}}` (or `session_id="..."`), the session of that id; if the
      messages do not extend it, it goes back to where they part, and the metadata says `"session": "rewound"`, or
      `"restarted"` where nothing could be reused;
    - without one, the idle session whose messages are the longest prefix of the call's, or a copy of one that begins
      like it.

    Calls of all instances that share an engine run one after the other on the engine's own thread.

    Per call: `stop`, `tools`, `tool_choice`, `parallel_tool_calls` and `response_format` in OpenAI's shapes, `grammar`
    (llguidance Lark; a reply with finish_reason "stop" always matches it), `session_id`, `model`, `tool_call_bias` and
    the sampling fields. Anything else is refused.

    Example:
        >>> chat = ChatAgentKV(kv_policy="conf-kv", kv_budget="8MiB")
        >>> chat.invoke("Name a colour.").response_metadata["agentkv"]["resident_kv_bytes"]
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), arbitrary_types_allowed=True)

    model: str = Field(default_factory=from_env("AGENTKV_MODEL", default="smollm2-135m"))
    """Name (`agentkv models list`), folder of a model or an adapter, or hub id."""
    kv_policy: str = Field(default_factory=from_env("AGENTKV_KV_POLICY", default="full"))
    kv_budget: int | str | None = Field(default_factory=from_env("AGENTKV_KV_BUDGET", default=None))
    """Per session: tokens (512), bytes ("24MiB") or a share of the window ("25%")."""
    kv_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the policy."""
    kv_pool: int | str | None = Field(default_factory=from_env("AGENTKV_KV_POOL", default=None))
    """Pool that all sessions of the engine share: bytes ("2GiB"), tokens of full KV, or a share of the free memory."""
    kv_spill: str | None = None
    """Where the least recently used idle session goes when the pool is full: "cpu" (host memory) or a folder. None: it
    is closed, and computed anew when it comes back."""
    dtype: str = Field(default_factory=from_env("AGENTKV_DTYPE", default="auto"))
    device: str = Field(default_factory=from_env("AGENTKV_DEVICE", default="cpu"))
    weights: str = Field(default_factory=from_env("AGENTKV_WEIGHTS", default="auto"))
    """Of decode steps: "model", "int8" (faster on a CPU), or "auto": int8 for models it was measured on."""
    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    max_tokens: int = Field(default=256, ge=1)
    seed: int | None = None
    stop: list[str] = Field(default_factory=list)
    """Not applied to replies under a grammar, which ends the reply itself."""
    tool_call_bias: float = 0.0
    """Added to the logits of the tokens that open a tool call, as long as a reply that may be text or a call has begun
    with them. 0 leaves the choice to the model; a small model may need several nats to call at all."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds a call may take, waiting included; then generation is cancelled and TimeoutError raised."""
    max_anonymous_sessions: int = Field(default=8, ge=0)
    """Idle sessions kept for prefix matches; the least recently used beyond these are closed."""
    streaming: bool = False
    max_retries: int = Field(default=0, ge=0)
    """Accepted for code written for remote models; a local model has no transport to retry."""
    api_key: SecretStr | None = Field(default=None, exclude=True)
    """Accepted for code written for remote models; never used."""

    _hosts: dict[str, ChatHost] = PrivateAttr(default_factory=dict)
    """By model name; engines are loaded at the first call."""

    @classmethod
    def from_engine(cls, engine: Engine, **fields: Any) -> ChatAgentKV:
        """A chat model over an engine that is already loaded."""
        chat = cls(model=engine.model_name, **fields)
        chat._hosts[engine.model_name] = host_of(engine)
        return chat

    # --- LangChain's entry points: the session id travels from the config to the call ---

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        """See `BaseChatModel.invoke`; reads `configurable.session_id` from the config."""
        return super().invoke(input, config, **_with_session(config, kwargs))

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """See `BaseChatModel.ainvoke`; reads `configurable.session_id` from the config."""
        return await super().ainvoke(input, config, **_with_session(config, kwargs))

    def stream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[AIMessageChunk]:
        """See `BaseChatModel.stream`; closing the iterator cancels generation."""
        return super().stream(input, config, **_with_session(config, kwargs))

    def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessageChunk]:
        """See `BaseChatModel.astream`; closing the iterator or cancelling the task cancels generation."""
        return super().astream(input, config, **_with_session(config, kwargs))

    # --- generation ---

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request, host = self._request(messages, stop, kwargs), self._host(kwargs)
        return to_result(list(run(host, request, self.timeout)), host.engine.model_name)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(messages, stop, kwargs)
        host = await asyncio.to_thread(self._host, kwargs)
        items = [item async for item in arun(host, request, self.timeout)]
        return to_result(items, host.engine.model_name)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        request, host = self._request(messages, stop, kwargs), self._host(kwargs)
        for item in run(host, request, self.timeout):
            chunk = to_chunk(item, host.engine.model_name)
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request = self._request(messages, stop, kwargs)
        host = await asyncio.to_thread(self._host, kwargs)
        async for item in arun(host, request, self.timeout):
            chunk = to_chunk(item, host.engine.model_name)
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _request(self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> ChatRequest:
        from agentkv.engine import SamplingParams

        unknown = sorted(set(kwargs) - set(_PER_CALL))
        if unknown:
            raise Unsupported(f"unknown argument {unknown[0]!r}; a call takes {', '.join(_PER_CALL)}")
        form, session_id = self._form(kwargs), kwargs.get("session_id")
        if form.grammar is not None and stop:
            raise Unsupported("a call takes stop strings or a grammar, not both: the grammar ends the reply")
        if session_id is not None and not (isinstance(session_id, str) and session_id):
            raise Unsupported(f"session_id must be a non-empty string, not {session_id!r}")
        sampling = {name: kwargs.get(name, getattr(self, name)) for name in _SAMPLING}
        stops = () if form.constrained else tuple(self.stop if stop is None else stop)
        return ChatRequest(
            turns=to_turns(messages),
            settings=self._settings,
            # A reply without a grammar is never empty: many callers take an empty one for a failure.
            params=SamplingParams(**sampling, stop=stops, min_tokens=int(not form.constrained)),
            session_id=session_id,
            form=form,
            max_anonymous=self.max_anonymous_sessions,
        )

    def _form(self, kwargs: Mapping[str, Any]) -> ReplyForm:
        wanted = {name: kwargs[name] for name in _FORM if name in kwargs}
        return ReplyForm.parse(**{"tool_call_bias": self.tool_call_bias, **wanted})

    # --- tools and structured output ---

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with tools that it may call.

        Args:
            tools: functions, LangChain tools, pydantic classes, TypedDicts, JSON schemas or OpenAI's dictionaries.
            tool_choice: "auto" or None: the model decides. "none" or False: text only. "any", "required" or True: at
                least one call. The name of a tool, or OpenAI's dictionary: that one.
            strict: passed on to the conversion of schemas; arguments always match their schema.
            parallel_tool_calls: whether a reply may hold several calls; by default one.

        Raises:
            Unsupported: an unknown choice or tool.
            AgentKVError: a schema that cannot be compiled.
        """
        specs = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        form = {"tools": specs, "tool_choice": tool_choice, "parallel_tool_calls": parallel_tool_calls}
        form = {name: value for name, value in form.items() if value is not None}
        check_form(self._form(form | {k: v for k, v in kwargs.items() if k in _FORM}))
        return self.bind(**form, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        method: Literal["json_schema", "function_calling", "json_mode"] = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """This model, answering with objects of `schema`.

        Args:
            schema: a pydantic class (version 1 or 2), a TypedDict or a JSON schema.
            method: "json_schema": the reply is a document of the schema, which the model is told. "function_calling":
                it is a call of a tool of that name. "json_mode": a document of the schema, but telling the model of
                it is up to the prompt.
            include_raw: return `{"raw", "parsed", "parsing_error"}`.
            strict: accepted; what comes back always matches the schema, as far as a grammar can say.

        Raises:
            Unsupported: an unknown method.
            AgentKVError: a schema that cannot be compiled.
        """
        kwargs |= {"ls_structured_output_format": {"kwargs": {"method": method}, "schema": json_schema_of(schema)}}
        if method == "function_calling":
            name = convert_to_openai_tool(schema)["function"]["name"]
            model = self.bind_tools([schema], tool_choice=name, strict=strict, **kwargs)
        else:
            wanted = {"response_format": response_format(schema, method)}
            check_form(self._form(wanted))
            model = self.bind(**wanted, **kwargs)
        return structured(model, output_parser(schema, method), include_raw)

    def load(self) -> None:
        """Load the model now, which the first call would do, and check policy, options and budget.

        Raises:
            AgentKVError: what the first call would raise for them.
        """
        settings = self._settings
        self._host({}).engine.open_session(settings.policy, settings.budget, **settings.options).close()

    # --- sessions and tokens ---

    def close_session(self, session_id: str) -> bool:
        """Close the session of this policy and budget, giving its KV back; loads nothing.

        Waits for calls that are already queued. Returns whether this instance knows such a session.
        """
        futures = [host.close_session(self._settings, session_id) for host in self._hosts.values()]
        closed = [future.result() for future in futures]
        return any(closed)

    async def aclose_session(self, session_id: str) -> bool:
        """Like `close_session`, without blocking the event loop."""
        return await asyncio.to_thread(self.close_session, session_id)

    def save_session(self, session_id: str, path: str | Path) -> None:
        """Write the session of this policy and budget to one file, with its conversation.

        Waits for calls that are already queued.

        Raises:
            AgentKVError: there is no such session.
            SessionFileError: the file cannot be written.
        """
        futures = [host.pack_session(self._settings, session_id) for host in self._hosts.values()]
        packed = next((found for future in futures if (found := future.result()) is not None), None)
        if packed is None:
            raise AgentKVError(f"there is no session {session_id!r} of this policy and budget")
        packed.write(Path(path))

    def restore_session(self, session_id: str, path: str | Path) -> None:
        """Open a session from a file that :meth:`save_session` wrote, in this process or another, under this id.

        The next call passes the whole conversation, as ever, and computes only what is new.

        Raises:
            SessionFileError: not such a file, damaged, of another model, or of another policy or budget.
            PoolExhausted: no room.
        """
        host = self._host({})
        host.restore_session(self._settings, session_id, host.read_session(self._settings, Path(path))).result()

    def explain(self, session_id: str) -> Explanation | None:
        """Which text the session of this policy and budget still holds, and in what form; None if there is none.

        Waits for calls that are already queued, and loads nothing.
        """
        futures = [host.explain(self._settings, session_id) for host in self._hosts.values()]
        return next((told for future in futures if (told := future.result()) is not None), None)

    def get_token_ids(self, text: str) -> list[int]:
        """Ids of `text` under the model's own tokenizer."""
        return self._host({}).template.encode(text)

    def get_num_tokens_from_messages(self, messages: Sequence[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Exact number of prompt tokens that `messages` need in a new session, with `tools` bound."""
        template = self._host({}).template
        known = parse_tools([convert_to_openai_tool(tool) for tool in tools or ()])
        return len(template.prompt(with_tools(to_turns(messages), known, template.dialect), known).ids)

    @property
    def _settings(self) -> KVSettings:
        return KVSettings(self.kv_policy, self.kv_budget, self.kv_options)

    def _host(self, kwargs: dict[str, Any]) -> ChatHost:
        """The host of the engine, which instances with the same model share."""
        model = kwargs.get("model") or self.model
        if model not in self._hosts:
            from agentkv.engine import Engine

            engine = Engine.shared(
                model,
                dtype=self.dtype,
                device=self.device,
                kv_pool=self.kv_pool,
                spill=self.kv_spill,
                weights=self.weights,
            )
            self._hosts[model] = host_of(engine)
        return self._hosts[model]

    # --- LangChain's bookkeeping ---

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, values: Any) -> Any:
        known = set(cls.model_fields) | {field.alias for field in cls.model_fields.values() if field.alias}
        unknown = next((name for name in values if name not in known), None) if isinstance(values, dict) else None
        if unknown is not None:
            near = difflib.get_close_matches(unknown, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see docs/chat_model.md for those it has"
            raise Unsupported(f"ChatAgentKV has no field {unknown!r}; {hint}")
        return values

    @field_validator("kv_budget", mode="before")
    @classmethod
    def _no_truth_value(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("kv_budget is a number of tokens, bytes as '24MiB' or a share as '25%'")
        return value

    @property
    def _llm_type(self) -> str:
        return "agentkv"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """Everything that changes replies: a response cache must not answer across policies or budgets."""
        kv = ("kv_policy", "kv_budget", "kv_options")
        names = ("model", "dtype", "device", "weights", *kv, *_SAMPLING, "stop", "tool_call_bias")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    def _resolve_model_profile(self) -> ModelProfile | None:
        return model_profile(self.model, self.kv_policy, self.kv_budget, self.kv_options, self.max_tokens)


def _with_session(config: RunnableConfig | None, kwargs: dict[str, Any]) -> dict[str, Any]:
    session_id = ensure_config(config).get("configurable", {}).get("session_id")
    return kwargs if session_id is None else {"session_id": session_id, **kwargs}
