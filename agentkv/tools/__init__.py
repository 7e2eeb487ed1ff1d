"""Tools and structured replies: how they are described to a model, what may be generated, and how a reply is read.

Everything here takes plain dictionaries in OpenAI's shapes and knows neither LangChain nor HTTP.
"""

from agentkv.tools.calls import Tool, ToolCall
from agentkv.tools.dialect import HERMES, Dialect
from agentkv.tools.form import ReplyForm
from agentkv.tools.reader import CallDelta, ReplyReader, TextDelta

__all__ = ["HERMES", "CallDelta", "Dialect", "ReplyForm", "ReplyReader", "TextDelta", "Tool", "ToolCall"]
