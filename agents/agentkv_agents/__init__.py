"""Agents that act in a browser: a language model, an oracle, and two controls."""

from agentkv_agents.base import Agent, AgentStep, KVStats, Usage
from agentkv_agents.registry import AgentKind, AgentSetup, get, names, register
from agentkv_agents.stop_rules import StopRules, Taken, early_stop_reason
from agentkv_agents.web_agent import WebAgent

__all__ = [
    "Agent",
    "AgentKind",
    "AgentSetup",
    "AgentStep",
    "KVStats",
    "StopRules",
    "Taken",
    "Usage",
    "WebAgent",
    "early_stop_reason",
    "get",
    "names",
    "register",
]
