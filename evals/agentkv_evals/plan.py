"""Options → the list of episodes. Every name a user can get wrong is checked here, before any model or
browser is started."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import agentkv_agents
from agentkv_agents.history import history_names
from agentkv_agents.prompting import PLAIN, Prompting, prompting_of
from agentkv_envs import DIALECTS, STYLES, Task, load_suite, load_task_file
from agentkv_envs.options import EnvOptions
from agentkv_evals.errors import EvalError
from agentkv_evals.judge import check_judge
from agentkv_evals.options import DEFAULT_BUDGET, EvalOptions
from agentkv_evals.relative import times_less

# The only policy that holds everything, so that a budget means nothing to it.
REFERENCE_POLICY = "full"
# Stands where a policy's name would, for agents that have no model.
NO_POLICY = "none"


@dataclass(frozen=True)
class Arm:
    """One column of the comparison: a policy under a budget (None: unlimited)."""

    policy: str
    budget: str | None = None

    @property
    def label(self) -> str:
        """How reports call it: "conf-kv @ 12MiB"."""
        return self.policy if self.budget is None else f"{self.policy} @ {self.budget}"


@dataclass(frozen=True)
class PlannedEpisode:
    """One cell of the grid."""

    task: Task
    arm: Arm
    seed: int

    @property
    def episode_id(self) -> str:
        """Unique in its run, and a folder's name."""
        parts = [self.task.task_id, self.arm.policy, self.arm.budget or "all", f"s{self.seed}"]
        return "__".join(_slug(part) for part in parts)


@dataclass(frozen=True)
class EvalPlan:
    """All episodes of a run, by data seed and task, so that a run cut short is still a paired comparison.

    They are played in this order, but for those whose budgets are told by what full KV takes: these come last.
    """

    options: EvalOptions
    tasks: tuple[Task, ...]
    arms: tuple[Arm, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def episodes(self) -> tuple[PlannedEpisode, ...]:
        """Every task on every data seed under every arm; the arms of one task follow each other.

        Where a budget is told by what full KV takes, full KV's episodes come first.
        """
        seeds = self.options.seeds
        grid = [PlannedEpisode(task, arm, seed) for seed in seeds for task in self.tasks for arm in self.arms]
        if any(times_less(arm.budget) for arm in self.arms):
            grid.sort(key=lambda episode: episode.arm.policy != REFERENCE_POLICY)
        return tuple(grid)

    def settings(self) -> dict[str, Any]:
        """The part of the configuration that decides what the numbers mean; its hash names the run."""
        options = self.options
        recipes = _recipes(self.arms) if self.needs_model else {}
        gates = _installed_gates([arm.policy for arm in self.arms]) if self.needs_model else {}
        return {
            "agent": options.agent,
            "model": options.model if self.needs_model else None,
            "dtype": options.dtype if self.needs_model else None,
            "weights": options.weights if self.needs_model else None,
            "arms": [[arm.policy, arm.budget] for arm in self.arms],
            "tasks": [[task.task_id, _digest(task.raw)] for task in self.tasks],
            "seed": options.seed,
            "max_steps": options.max_steps,
            "style": options.style,
            "history": options.history,
            "step_timeout_s": options.step_timeout_s,
            "scoring": options.scoring,
            "environment": self.environment.as_dict(),
            "judges": [options.judge, options.image_judge],
            **({"recipes": recipes} if recipes else {}),
            **({"gates": gates} if gates else {}),
            **({"notes": True} if options.notes else {}),
            **({"prompting": asdict(self.prompting)} if self.prompting != PLAIN else {}),
            **({"protect": list(options.protect)} if options.protect else {}),
            **({"data_seeds": options.data_seeds} if options.data_seeds > 1 else {}),
        }

    @property
    def environment(self) -> EnvOptions:
        """What the agent sees, its pictures' captions among it, and how it is scored."""
        options = self.options
        return EnvOptions(style=options.style, scoring=options.scoring, step_timeout_s=options.step_timeout_s)

    @cached_property
    def prompting(self) -> Prompting:
        """How the agent asks its model: as that was taught, but for what the options say. Raises ModelError."""
        options = self.options
        if not self.needs_model:
            return PLAIN
        prompting = prompting_of(options.model)
        # A history that keeps no replies keeps no plan.
        plan = prompting.plan and options.history == "append" if options.plan is None else options.plan
        of_plans = {"follow_plan": options.follow_plan, "recall": options.recall}
        for name, value in of_plans.items():
            if value is not None and not plan:
                raise EvalError(
                    f"--{name.replace('_', '-')} has no use without a plan; add --plan, or take a model that was taught"
                    " to plan"
                )
        return prompting.but(plan=plan, explain_actions=options.explain_actions, **of_plans)

    @property
    def fingerprint(self) -> str:
        """Eight hex digits of `settings()`."""
        return _digest(self.settings())[:8]

    @property
    def needs_model(self) -> bool:
        """Whether the agent talks to a language model."""
        return agentkv_agents.get(self.options.agent).needs_model


def make_plan(options: EvalOptions, policy_names: Callable[[], Sequence[str]]) -> EvalPlan:
    """Checks every name and lays out the grid. `policy_names` is only asked if the agent has a model.

    Raises EvalError, UnknownName or TaskError, each a single line.
    """
    agent = agentkv_agents.get(options.agent)
    _check_choice("--style", options.style, STYLES)
    _check_choice("--history", options.history, history_names())
    _check_choice("--scoring", options.scoring, DIALECTS)
    for flag, name in (("--judge", options.judge), ("--image-judge", options.image_judge)):
        if name is not None:
            check_judge(flag, name)
    for flag, given in (("--notes", options.notes), ("--plan", options.plan)):
        if given and options.history != "append":
            raise EvalError(f"{flag} has no use with --history {options.history}, which keeps no replies; use append")
    tasks = _load_tasks(options)
    if not tasks:
        raise EvalError(f"no tasks in {options.tasks or options.task_file}")
    if options.data_seeds > 1 and any(task.external for task in tasks):
        raise EvalError("real hosts have one state of data: --data-seeds is for the embedded suites")
    if options.limit is not None:
        tasks = tasks[: options.limit]
    if agent.needs_model:
        arms, notes = _model_arms(options, policy_names())
    else:
        asked = {
            "--notes": options.notes or None,
            "--plan": options.plan,
            "--follow-plan": options.follow_plan,
            "--recall": options.recall,
            "--explain-actions": options.explain_actions,
        }
        for flag, value in {"--protect": options.protect or None, **asked}.items():
            if value is not None:
                raise EvalError(f"{flag} is for agents with a model, and {options.agent!r} has none")
        arms = (Arm(NO_POLICY),)
        notes = (f"agent {options.agent!r} has no model: policies and budgets do not apply",)
    plan = EvalPlan(options, tuple(tasks), arms, (*notes, *_host_notes(tasks)))
    _check_unique(plan)
    return plan


def _host_notes(tasks: Sequence[Task]) -> tuple[str, ...]:
    """What is not set for tasks on real hosts; raises EnvError for an address that is missing."""
    if not any(task.external for task in tasks):
        return ()
    from agentkv_envs import hosts

    return hosts.require(tasks)


def _model_arms(options: EvalOptions, policy_names: Sequence[str]) -> tuple[tuple[Arm, ...], tuple[str, ...]]:
    from agentkv.policies.registry import parse_roles

    parse_roles("--protect", options.protect)
    recipes = _recipes([Arm(policy) for policy in options.policies])
    for policy in options.policies:
        _check_choice("--policy", policy, (*policy_names, *recipes))
    policies = list(dict.fromkeys(options.policies))
    budgeted = [policy for policy in policies if policy != REFERENCE_POLICY]
    notes = []
    if budgeted and not options.budgets:
        notes.append(f"no --budget given: {DEFAULT_BUDGET} for {', '.join(budgeted)}")
    if options.budgets and not budgeted:
        notes.append(f"--budget does not apply to {REFERENCE_POLICY}, which keeps everything")
    budgets = list(dict.fromkeys(options.budgets)) or [DEFAULT_BUDGET]
    relative = next((budget for budget in budgets if times_less(budget)), None)
    if relative is not None and budgeted and REFERENCE_POLICY not in policies:
        raise EvalError(f"--budget {relative} is told by what full KV takes: add --policy {REFERENCE_POLICY}")
    # The reference goes first, so that the rows after it can say how much less they hold.
    arms = [Arm(REFERENCE_POLICY)] if REFERENCE_POLICY in policies else []
    arms += [Arm(policy, budget) for policy in budgeted for budget in budgets]
    return tuple(arms), tuple(notes)


def _recipes(arms: Sequence[Arm]) -> dict[str, object]:
    """What the policies that are paths of recipes stand for now. Raises AgentKVError for a recipe that is none."""
    from agentkv.policies import build
    from agentkv.policies.registry import is_recipe

    return {arm.policy: build(arm.policy).options["recipe"] for arm in arms if is_recipe(arm.policy)}


def _installed_gates(policies: Sequence[str]) -> dict[str, str]:
    """Digests of the gates that packages bring, if one of the policies takes its own from there."""
    from agentkv.policies import build
    from agentkv.policies.shipped_gates import installed_digests
    from agentkv.policies.trim_kv import takes_installed_gates

    return installed_digests() if any(takes_installed_gates(build(policy)) for policy in policies) else {}


def _load_tasks(options: EvalOptions) -> list[Task]:
    if options.task_file is not None:
        return list(load_task_file(options.task_file))
    return list(load_suite(str(options.tasks), options.vwa_configs))


def _check_choice(flag: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise EvalError(f"unknown {flag.lstrip('-')} {value!r}; there are: {', '.join(choices)}")


def _check_unique(plan: EvalPlan) -> None:
    seen: dict[str, PlannedEpisode] = {}
    for episode in plan.episodes:
        other = seen.setdefault(episode.episode_id, episode)
        if other is not episode:
            raise EvalError(
                f"tasks {other.task.task_id!r} and {episode.task.task_id!r} share one name; rename one of them"
            )


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text.replace("%", "pct"))[:80]


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
