"""Several episodes at once: processes that each have a browser and a model of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from agentkv.errors import AgentKVError
from agentkv_envs import EnvError
from agentkv_evals.backends import default_backends
from agentkv_evals.episode import EpisodeResult, Interrupted
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import REFERENCE_POLICY, Arm, EvalPlan, PlannedEpisode
from agentkv_evals.player import Backends, Played, Player
from agentkv_evals.run_folder import RunFolder

T = TypeVar("T")
MakeBackends = Callable[[EvalPlan], Backends]
# How long a request to stop may go unnoticed.
_POLL_S = 0.2
_Running = dict[Future[EpisodeResult], PlannedEpisode]


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
        # Pipes and no events: whoever is killed while it looks at an event may keep its lock for ever. What is written
        # to the first stays readable; the second ends with this process, however that ends.
        stop, self._stop = context.Pipe(duplex=False)
        alive, self._alive = context.Pipe(duplex=False)
        self._stopped = False
        self._pool = ProcessPoolExecutor(
            workers, context, _start_worker, (plan, run.path, make_backends, stop, alive)
        )  # fmt: skip

    def prepare(self, arms: Mapping[Arm, Arm]) -> None:
        if arms:
            self._result(self._submit(_prepare, dict(arms)))

    def play(self, episodes: Iterable[PlannedEpisode], arms: Mapping[Arm, Arm]) -> Iterator[Played]:
        waiting, running, dropped = list(episodes), _Running(), False
        while waiting or running:
            if self._interrupted():
                self._ask_to_stop()
                dropped, waiting = dropped or bool(waiting), []
            elif len(running) < self._workers and (episode := _next(waiting, running)) is not None:
                waiting.remove(episode)
                running[self._submit(_play, episode, dict(arms))] = episode
                self._on_start(episode)
                continue
            # What went well is on disk before what did not raises.
            for future in sorted(wait(running, _POLL_S, FIRST_COMPLETED).done, key=_failed):
                episode = running.pop(future)
                try:
                    yield episode, self._result(future)
                except Interrupted:
                    dropped = True
        if dropped:
            raise Interrupted

    def close(self, at_once: bool = False) -> None:
        self._ask_to_stop()
        if at_once:
            self._alive.close()
        self._pool.shutdown(cancel_futures=True)
        self._alive.close()

    def _ask_to_stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._stop.send_bytes(b"stop")

    def _submit(self, work: Callable[..., T], *given: Any) -> Future[T]:
        with self._explaining(), _signals_held():
            return self._pool.submit(work, *given)

    def _result(self, future: Future[T]) -> T:
        with self._explaining():
            return future.result()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool as error:
            if self._interrupted():
                raise Interrupted from error
            raise EvalError(
                "a worker ended by itself, perhaps for want of memory: each holds a model and a browser; what is "
                "finished is kept, and the same command goes on, with fewer --workers if memory is short"
            ) from error


def _next(waiting: Iterable[PlannedEpisode], running: _Running) -> PlannedEpisode | None:
    """The first that compares with no episode under way: a row says how much less it took than full KV."""
    under_way = [(own.task.task_id, own.seed) for own in running.values() if own.arm.policy == REFERENCE_POLICY]
    return next((own for own in waiting if (own.task.task_id, own.seed) not in under_way), None)


def _failed(future: Future[Any]) -> bool:
    return future.exception() is not None


@contextmanager
def _signals_held() -> Iterator[None]:
    """A process that is made meanwhile gets none before it can take them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Of a worker process, from here on.

_player: Player | None = None


def _start_worker(plan: EvalPlan, run: Path, make_backends: MakeBackends, stop: Connection, alive: Connection) -> None:
    global _player  # noqa: PLW0603 - a worker is one player
    pressed: list[int] = []
    # Ctrl-C reaches workers and browsers too: a browser that it ended is no failure, and the step has to end.
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    player = Player(plan, RunFolder(run), make_backends(plan), interrupted=lambda: bool(pressed) or stop.poll())
    util.Finalize(None, player.close, exitpriority=10)  # the way to clean up that such a process has
    _player = player


def _end_with(alive: Connection) -> None:
    """The parent cannot tell its workers that it was killed."""
    connection.wait([alive])
    os._exit(1)


def _prepare(arms: dict[Arm, Arm]) -> None:
    assert _player is not None
    _with_plain_errors(_player.prepare, arms)


def _play(episode: PlannedEpisode, arms: dict[Arm, Arm]) -> EpisodeResult:
    _prepare(arms)
    assert _player is not None
    return _with_plain_errors(_player.play_one, episode)


def _with_plain_errors(work: Callable[..., T], *given: Any) -> T:
    """A user's mistake travels as its sentence: exceptions that take more than a message cannot."""
    try:
        return work(*given)
    except (AgentKVError, EnvError) as error:
        raise EvalError(str(error)) from None
