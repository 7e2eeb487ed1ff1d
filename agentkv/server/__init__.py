"""An OpenAI-compatible server: many sessions, one model, one KV pool."""

from agentkv.server.settings import ServerSettings

__all__ = ["ServerSettings"]
