"""What `agentkv eval` can be asked."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from agentkv_evals.errors import EvalError

DEFAULT_BUDGET = "12MiB"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class EvalOptions:
    """One evaluation: which tasks, which agent and model, under which KV policies and budgets.

    The grid is tasks × policies × budgets. `full` has no budget; every budget applies to every other policy
    (by default one, `DEFAULT_BUDGET`). A budget is tokens ("512"), bytes ("24MiB"), a share ("25%") or full KV's mean
    peak so many times less ("full/2.8").

    Attributes:
        tasks: suite with an optional glob over task ids, "vwa75:shopping-00*"; or set `task_file`.
        limit: only the first so many tasks.
        seed: seed of the sites' data, of sampling and of the random agent.
        protect: roles whose words no policy may evict: "system", "task", "observation" (the newest), "action".
        data_seeds: so many seeds, from `seed` on: every task is drawn again, on other data, for each of them.
        notes: whether a reply of the model may begin with a note to itself.
        plan: whether the model writes a plan first and goes through it by number; None: as it was taught.
        follow_plan: whether steps that the plan tells have to be taken as written; None: as the model says, mostly yes.
        recall: whether a step that the plan leaves open may begin with what it is about; None: as it was taught.
        explain_actions: whether the actions are explained to the model; None: as it was taught.
        name: part of the run folder's name; by default the suite's.
        fresh: start a new run folder instead of continuing the newest one with the same settings.
        workers: episodes played at once, each by a process with a browser and a model of its own.
        retry_errors: run episodes again that ended as infra_error.
        step_timeout_s: a page that hangs longer ends its episode as infra_error.
        scoring: "fixed" or "official" evaluator semantics.
        vwa_configs: where VisualWebArena's configurations are, for `vwa:...` and `vwa75-official`.
        judge: chat model that scores what no rule can (see `agentkv_evals.judge.chat_model`); None: unscored.
        image_judge: chat model that answers questions about pictures; None: unscored.
    """

    tasks: str | None = None
    task_file: Path | None = None
    model: str = "smollm2-135m-web"
    agent: str = "llm"
    policies: tuple[str, ...] = ("full",)
    budgets: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    limit: int | None = None
    seed: int = 0
    data_seeds: int = 1
    runs_dir: Path = Path("runs")
    name: str | None = None
    max_steps: int = 30
    style: str = "label-first"
    history: str = "append"
    notes: bool = False
    plan: bool | None = None
    follow_plan: bool | None = None
    recall: bool | None = None
    explain_actions: bool | None = None
    dtype: str = "auto"
    weights: str = "auto"
    json: bool = False
    fresh: bool = False
    workers: int = 1
    retry_errors: bool = False
    step_timeout_s: float = 20.0
    scoring: str = "fixed"
    vwa_configs: Path | None = None
    judge: str | None = None
    image_judge: str | None = None

    def __post_init__(self) -> None:
        if (self.tasks is None) == (self.task_file is None):
            raise EvalError("say which tasks to run: either --tasks SUITE[:GLOB] or --task-file FILE")
        if self.limit is not None and self.limit < 1:
            raise EvalError(f"--limit must be at least 1, not {self.limit}")
        if self.data_seeds < 1:
            raise EvalError(f"--data-seeds must be at least 1, not {self.data_seeds}")
        if self.data_seeds > 1 and self.task_file is not None:
            raise EvalError("tasks of a file keep the data they were written for: --data-seeds is for suites")
        if self.workers < 1:
            raise EvalError(f"--workers must be at least 1, not {self.workers}")
        if self.max_steps < 1:
            raise EvalError(f"--max-steps must be at least 1, not {self.max_steps}")
        if not 0 < self.step_timeout_s < math.inf:
            raise EvalError(f"the step timeout must be above 0 s, not {self.step_timeout_s}")
        if not self.policies:
            raise EvalError("name at least one --policy")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise EvalError(
                f"--name {self.name!r} becomes part of a folder's name: use up to 64 letters, digits, . _ -"
            )

    @property
    def seeds(self) -> range:
        """The data seeds."""
        return range(self.seed, self.seed + self.data_seeds)

    @property
    def run_name(self) -> str:
        """Name of the run: `name`, or the suite's, or the task file's."""
        if self.name is not None:
            return self.name
        source = self.task_file.stem if self.task_file is not None else str(self.tasks).partition(":")[0]
        return re.sub(r"[^A-Za-z0-9._-]+", "-", source).strip("-.")[:64] or "eval"
