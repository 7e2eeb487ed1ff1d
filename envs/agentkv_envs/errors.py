"""Errors of the environment. Each message is one line: what is wrong, where, and what to do."""

from __future__ import annotations


class EnvError(Exception):
    """Base of every error the command line prints as one line (exit code 2)."""


class BrowserMissing(EnvError):
    """No Chromium was found; the message holds the commands that install one."""


class TaskError(EnvError):
    """A task or suite that cannot be used.

    Attributes:
        source: the file or suite the task came from.
        field: the offending field, as a dotted path ("" when the whole file is meant).
        reason: what is wrong with it.
    """

    def __init__(self, source: str, field: str, reason: str):
        self.source = source
        self.field = field
        self.reason = reason
        where = f"{source}: {field}" if field else source
        super().__init__(f"{where}: {reason}")


class ActionError(EnvError):
    """An action that cannot be carried out on this page; the episode goes on."""


class InfraError(EnvError):
    """The browser or the site failed (hung page, crashed browser): not the agent's fault."""
