"""Several episodes at once: processes that each have a browser and a model of their own."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, util
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, TypeVar

from agentkv.errors import AgentKVError
from agentkv_envs import EnvError
from agentkv_evals.backends import default_backends
from agentkv_evals.episode import EpisodeResult, Interrupted
from agentkv_evals.errors import EvalError
from agentkv_evals.interrupt import InterruptGuard
from agentkv_evals.plan import Arm, EvalPlan, PlannedEpisode
from agentkv_evals.player import Backends, Played, Player
from agentkv_evals.run_folder import RunFolder

T = TypeVar("T")
MakeBackends = Callable[[EvalPlan], Backends]
# How long a request to stop may go unnoticed.
_POLL_S = 0.2


class WorkerPool:
    """Plays episodes in processes; which of them plays an episode decides nothing.

    Args:
        plan: the episodes' plan.
        run: where their steps and pictures go; only this process writes results.
        workers: how many.
        make_backends: what a worker makes its browser and models with; a function at the top of a module.
        on_start: called with every episode.
        interrupted: whether to stop after the steps under way.
    """

    def __init__(
        self,
        plan: EvalPlan,
        run: RunFolder,
        workers: int,
        *,
        make_backends: MakeBackends = default_backends,
        on_start: Callable[[PlannedEpisode], None] = lambda episode: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._workers = workers
        self._on_start = on_start
        self._interrupted = interrupted
        # Not forked: neither torch's threads nor a browser's pipes survive that.
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._pool = ProcessPoolExecutor(
            workers, context, _start_worker, (plan, run.path, make_backends, self._stop)
        )  # fmt: skip

    def prepare(self, arms: Mapping[Arm, Arm]) -> None:
        if arms:
            _result(self._pool.submit(_prepare, dict(arms)))

    def play(self, episodes: Iterable[PlannedEpisode], arms: Mapping[Arm, Arm]) -> Iterator[Played]:
        waiting, running = iter(episodes), dict[Future[EpisodeResult], PlannedEpisode]()
        while True:
            if self._interrupted():
                self._stop.set()
            elif len(running) < self._workers and (episode := next(waiting, None)) is not None:
                running[self._pool.submit(_play, episode, dict(arms))] = episode
                self._on_start(episode)
                continue
            if not running:
                break
            yield from self._ended(running)
        if self._stop.is_set():
            raise Interrupted

    def _ended(self, running: dict[Future[EpisodeResult], PlannedEpisode]) -> Iterator[Played]:
        """Episodes that end within a moment; those that were stopped are dropped."""
        for future in wait(running, _POLL_S, FIRST_COMPLETED).done:
            episode = running.pop(future)
            try:
                yield episode, _result(future)
            except Interrupted:
                self._stop.set()

    def close(self) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise EvalError(
            "a worker ended in the middle of an episode, perhaps for want of memory: each holds a model and a browser; "
            "what is finished is kept, and the same command goes on, with fewer --workers if memory is short"
        ) from error


# Of a worker process, from here on.

_player: Player | None = None


def _start_worker(plan: EvalPlan, run: Path, make_backends: MakeBackends, stop: Event) -> None:
    global _player  # noqa: PLW0603 - a worker is one player
    guard = InterruptGuard(lambda: None)  # Ctrl-C reaches workers too, and must let their steps end
    guard.__enter__()
    _player = Player(
        plan, RunFolder(run), make_backends(plan), interrupted=lambda: guard.requested() or stop.is_set()
    )  # fmt: skip
    util.Finalize(None, _player.close, exitpriority=10)  # the way to clean up that such a process has
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process that was killed cannot tell its workers to end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _prepare(arms: dict[Arm, Arm]) -> None:
    assert _player is not None
    _in_one_line(_player.prepare, arms)


def _play(episode: PlannedEpisode, arms: dict[Arm, Arm]) -> EpisodeResult:
    _prepare(arms)
    assert _player is not None
    return _in_one_line(_player.play_one, episode)


def _in_one_line(work: Callable[..., T], *given: Any) -> T:
    """A user's mistake travels as its sentence: exceptions with more arguments than one cannot."""
    try:
        return work(*given)
    except (AgentKVError, EnvError) as error:
        raise EvalError(str(error)) from None
