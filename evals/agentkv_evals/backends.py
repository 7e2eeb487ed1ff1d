"""The browser and the chat models that `agentkv eval` runs on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from agentkv_evals.judge import chat_model, image_judge, text_judge
from agentkv_evals.plan import REFERENCE_POLICY, Arm, EvalPlan
from agentkv_evals.player import Backends

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from agentkv_envs.scoring import Judges
    from agentkv_evals.episode import Env
    from agentkv_evals.options import EvalOptions


def policy_names() -> tuple[str, ...]:
    """KV policies there are."""
    from agentkv import policies

    return policies.names()


def default_backends(plan: EvalPlan) -> Backends:
    """`WebEnv` and `ChatAgentKV` as the plan's options say; all arms share one engine. Nothing is loaded yet."""
    options = plan.options

    def make_env() -> Env:
        from agentkv_envs import WebEnv

        return WebEnv(
            style=options.style,
            step_timeout_s=options.step_timeout_s,
            scoring=options.scoring,
            judges=judges(options),
        )

    def make_model(arm: Arm) -> BaseChatModel:
        from agentkv.chat_model import ChatAgentKV
        from agentkv.engine import Engine

        _leave_cores_to_browsers(options.workers)
        engine = Engine.shared(options.model, dtype=options.dtype, weights=options.weights)
        # A budget that is too small for the policy is found out here, not after the first page.
        kv_options = protection(arm, options.protect)
        engine.open_session(arm.policy, arm.budget, **kv_options).close()
        return ChatAgentKV.from_engine(
            engine,
            kv_policy=arm.policy,
            kv_budget=arm.budget,
            kv_options=kv_options,
            temperature=0.0,
            seed=options.seed,
        )

    return Backends(make_env, make_model)


def protection(arm: Arm, roles: Sequence[str]) -> dict[str, Any]:
    """Options of an arm's policy that protect these roles; `full` drops nothing that would have to be protected."""
    return {"protect": list(roles)} if roles and arm.policy != REFERENCE_POLICY else {}


def preflight(plan: EvalPlan, out: TextIO) -> None:
    """Tells what is wrong with the real hosts the plan needs. Raises EnvError when none of them answers."""
    if not any(task.external for task in plan.tasks):
        return
    from agentkv_envs import WebEnv

    with WebEnv(screenshots=False) as env:
        for note in env.preflight(plan.tasks):
            print(f"note: {note}", file=out, flush=True)


def judges(options: EvalOptions) -> Judges:
    """The judges that were asked for."""
    from agentkv_envs.scoring.judges import Judges

    return Judges(
        text_judge(chat_model("--judge", options.judge)) if options.judge else None,
        image_judge(chat_model("--image-judge", options.image_judge)) if options.image_judge else None,
    )


def _leave_cores_to_browsers(workers: int) -> None:
    """torch's threads spin while they wait: beside a busy browser, one thread too many is many times slower."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(torch.get_num_threads(), cores // workers - 1)))


def check_budgets(arms: Sequence[Arm]) -> None:
    """Raises AgentKVError for a budget that is none, before any model is loaded."""
    absolute = [arm.budget for arm in arms if arm.budget is not None]
    if absolute:
        from agentkv.cache.budget import Budget

        for budget in absolute:
            Budget.parse(budget)
