"""Structured output: from a schema of any kind to a constraint, and from the reply to an object of it."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.output_parsers import (
    BaseOutputParser,
    JsonOutputKeyToolsParser,
    JsonOutputParser,
    PydanticOutputParser,
    PydanticToolsParser,
)
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass

from agentkv.errors import Unsupported
from agentkv.tools import ReplyForm
from agentkv.tools.grammar import json_grammar

METHODS = ("json_schema", "function_calling", "json_mode")


def json_schema_of(schema: Any) -> dict[str, Any]:
    """The JSON schema of a class or dictionary. Raises Unsupported for what is no schema."""
    try:
        return convert_to_json_schema(schema)
    except ValueError as error:
        raise Unsupported(f"this is no schema for structured output: {' '.join(str(error).split())}") from error


def response_format(schema: Any, method: str) -> dict[str, Any]:
    """OpenAI's parameter of that name. Raises Unsupported for an unknown method."""
    if method not in METHODS:
        raise Unsupported(f"unknown method {method!r}; it is one of {', '.join(METHODS)}")
    parsed = json_schema_of(schema)
    if method == "json_mode":
        return {"type": "json_object", "schema": parsed}
    return {"type": "json_schema", "json_schema": {"name": parsed.get("title", "reply"), "schema": parsed}}


def check_form(form: ReplyForm) -> None:
    """Compile every schema, without a model. Raises AgentKVError naming the one that is wrong."""
    from agentkv.engine.constraints import check_grammar

    for tool in form.tools:
        check_grammar(json_grammar(tool.schema), f"the JSON schema of tool {tool.name!r}")
    if form.schema is not None:
        check_grammar(json_grammar(form.schema), "the JSON schema of the reply")


def output_parser(schema: Any, method: str) -> BaseOutputParser[Any]:
    """From a reply to an object of `schema`: an instance of a pydantic class, else a dictionary."""
    is_class = isinstance(schema, type) and is_basemodel_subclass(schema)
    if method == "function_calling":
        if is_class:
            return PydanticToolsParser(tools=[schema], first_tool_only=True)
        name = convert_to_openai_tool(schema)["function"]["name"]
        return JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
    return PydanticOutputParser(pydantic_object=schema) if is_class else JsonOutputParser()


def structured(model: Runnable[Any, AIMessage], parser: BaseOutputParser[Any], include_raw: bool) -> Runnable[Any, Any]:
    """A model and the parser of its replies; with `include_raw`, an error of parsing is a value."""
    if not include_raw:
        return model | parser
    parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=model) | parsed.with_fallbacks([failed], exception_key="parsing_error")
