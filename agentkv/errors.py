"""Errors a user can cause and mend. Each message says what is wrong, where, and what to do."""

from __future__ import annotations


class AgentKVError(Exception):
    """Base of every error that the command line prints as one line (exit code 2)."""


class UnknownName(AgentKVError):
    """A policy, model or suite that nobody registered; the message lists the names there are."""


class BudgetTooSmall(AgentKVError):
    """The budget cannot hold the slots that the policy must protect."""


class ContextOverflow(AgentKVError):
    """The prompt does not fit the model's context window, or the budget of a policy that drops nothing.

    Attributes:
        prompt_tokens: tokens the session would hold, the prompt included.
        limit: the most it can hold.
    """

    def __init__(
        self,
        prompt_tokens: int,
        limit: int,
        hint: str = "shorten the prompt or start a new session",
        what: str = "the model's window",
    ):
        super().__init__(f"the session needs {prompt_tokens} tokens but {what} holds {limit}; {hint}")
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class PromptTooLong(ContextOverflow):
    """The messages add more to a session than one call may.

    Attributes:
        prompt_tokens: tokens that they add; by a guess if they were too long to be counted.
        limit: the most that a call may add.
    """

    def __init__(self, prompt_tokens: int, limit: int, what: str):
        AgentKVError.__init__(self, f"the messages add {what}; send less at a time")
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class PoolExhausted(AgentKVError):
    """Every page of the KV pool is held by a session that is in use."""


class ModelError(AgentKVError):
    """A model that cannot be found, fetched, verified or handled."""


class SessionFileError(AgentKVError):
    """A session file that cannot be written, is damaged, or belongs to another model."""


class GatesFileError(AgentKVError):
    """A file of retention gates that cannot be read or written, is damaged, or belongs to another model."""


class Unsupported(AgentKVError):
    """Something agentkv declines to do, with the reason."""


class ReplyTruncated(AgentKVError):
    """A reply that had to be whole, a tool call or a JSON document, was cut off. No part of it is passed on as such.

    Attributes:
        finish_reason: what cut it off: "length" (max_tokens), "context_full", or "stop" (a stop string).
        text: what there is of the reply.
    """

    def __init__(self, what: str, finish_reason: str, text: str):
        causes = {
            "length": "max_tokens ran out; raise it",
            "context_full": "the session has no room for more; start a new one or use an evicting policy",
            "stop": "a stop string appeared in it; leave stop strings out",
        }
        super().__init__(f"{what} was cut off: {causes.get(finish_reason, finish_reason)}")
        self.finish_reason = finish_reason
        self.text = text
