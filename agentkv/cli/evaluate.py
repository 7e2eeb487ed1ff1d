"""`agentkv eval`: episodes in a real browser, then a report of success against KV memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv_evals.options import EvalOptions

_option = typer.Option


def evaluate(
    tasks: Annotated[str | None, _option(help="Suite, or SUITE:GLOB over task ids.")] = None,
    task_file: Annotated[Path | None, _option(help="JSON file of tasks, in place of --tasks.")] = None,
    model: Annotated[str, _option(help="Name (agentkv models list), folder or hub id.")] = EvalOptions.model,
    agent: Annotated[str, _option(help="llm, oracle, random or null.")] = EvalOptions.agent,
    policy: Annotated[list[str] | None, _option(help="KV policy; repeatable. [default: full]")] = None,
    budget: Annotated[
        list[str] | None,
        _option(
            help="KV budget of a session: 512, 24MiB, 25% or full/4: full KV's mean peak, 4 times less; repeatable."
        ),
    ] = None,
    protect: Annotated[
        list[str] | None,
        _option(help="Whose words no policy may evict: system, task, observation (the newest) or action; repeatable."),
    ] = None,
    limit: Annotated[int | None, _option(help="Only the first so many tasks.")] = None,
    seed: Annotated[int, _option(help="Seed of the sites' data and of sampling.")] = EvalOptions.seed,
    data_seeds: Annotated[
        int, _option(help="Draw every task of an embedded suite again on so many data seeds, from --seed on.")
    ] = EvalOptions.data_seeds,
    runs_dir: Annotated[Path, _option(help="Folder for the run's folder.")] = EvalOptions.runs_dir,
    name: Annotated[str | None, _option(help="Name of the run. [default: the suite's]")] = None,
    max_steps: Annotated[int, _option(help="Steps an episode may take.")] = EvalOptions.max_steps,
    style: Annotated[str, _option(help="Observation style: label-first or vwa.")] = EvalOptions.style,
    history: Annotated[
        str, _option(help="append: keep all pages in context; official: the current one.")
    ] = EvalOptions.history,
    notes: Annotated[
        bool, _option("--notes", help="Let the model begin a reply with a note to itself.")
    ] = EvalOptions.notes,
    plan: Annotated[
        bool | None,
        _option(help="Let the model write a plan first and go through it by number. [default: as it was taught]"),
    ] = None,
    follow_plan: Annotated[
        bool | None,
        _option(help="Hold the model to the steps that its plan tells, where the page allows. [default: yes]"),
    ] = None,
    recall: Annotated[
        bool | None,
        _option(help="Let the model write down what it remembers where its plan says ?. [default: as it was taught]"),
    ] = None,
    explain_actions: Annotated[
        bool | None, _option(help="Explain the actions to the model. [default: as it was taught]")
    ] = None,
    dtype: Annotated[str, _option(help="auto, float32 or bfloat16.")] = EvalOptions.dtype,
    weights: Annotated[str, _option(help="Of decode steps: model, int8 or auto.")] = EvalOptions.weights,
    step_timeout: Annotated[
        float, _option(help="Seconds after which a hung page ends its episode.")
    ] = EvalOptions.step_timeout_s,
    scoring: Annotated[
        str, _option(help="fixed, or official: as the benchmark's released code scores.")
    ] = EvalOptions.scoring,
    judge: Annotated[
        str | None, _option(help="Chat model for answers no rule can score: as --model, or PROVIDER:MODEL.")
    ] = None,
    image_judge: Annotated[str | None, _option(help="Chat model for questions about pictures.")] = None,
    vwa_configs: Annotated[
        Path | None, _option(help="File or folder of VisualWebArena's configurations, for vwa:... tasks.")
    ] = None,
    fresh: Annotated[bool, _option("--fresh", help="Start a new run instead of going on with the last one.")] = False,
    workers: Annotated[
        int, _option(help="Episodes at once, each in a process with its own browser and model.")
    ] = EvalOptions.workers,
    retry_errors: Annotated[bool, _option("--retry-errors", help="Repeat episodes that ended as infra_error.")] = False,
    as_json: Annotated[bool, _option("--json", help="One JSON object per episode, nothing else on stdout.")] = False,
) -> None:
    """Run web tasks under KV policies and write a report. The same command goes on where it was interrupted.

    \b
    Examples:
      agentkv eval --tasks vwa75 --policy full --policy conf-kv --budget 12MiB
      agentkv eval --tasks "vwa75:shopping-00*" --agent oracle
      agentkv eval --tasks vwa75 --policy full --policy conf-kv --budget full/2 --data-seeds 4 --workers 2
      agentkv eval --task-file my_tasks.json --model ./my-model --limit 3
      agentkv eval --tasks "miniwob:click-*" --agent oracle
      agentkv eval --tasks vwa:classifieds:0-50 --judge openai:gpt-5-mini
    """
    from agentkv_evals.cli import run_eval

    options = EvalOptions(
        tasks=tasks,
        task_file=task_file,
        model=model,
        agent=agent,
        policies=tuple(policy or EvalOptions.policies),
        budgets=tuple(budget or ()),
        protect=tuple(protect or ()),
        limit=limit,
        seed=seed,
        data_seeds=data_seeds,
        runs_dir=runs_dir,
        name=name,
        max_steps=max_steps,
        style=style,
        history=history,
        notes=notes,
        plan=plan,
        follow_plan=follow_plan,
        recall=recall,
        explain_actions=explain_actions,
        dtype=dtype,
        weights=weights,
        json=as_json,
        fresh=fresh,
        workers=workers,
        retry_errors=retry_errors,
        step_timeout_s=step_timeout,
        scoring=scoring,
        judge=judge,
        image_judge=image_judge,
        vwa_configs=vwa_configs,
    )
    raise typer.Exit(run_eval(options))
