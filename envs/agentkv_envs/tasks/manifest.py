"""Which tasks make up `vwa75`: a family each, values pinned for data seed 0 where it matters, and the twins."""

from __future__ import annotations

from agentkv_envs.tasks.assemble import Spec

_SPECS: tuple[Spec, ...] = ()

VWA75: dict[str, Spec] = {spec.task_id: spec for spec in _SPECS}
