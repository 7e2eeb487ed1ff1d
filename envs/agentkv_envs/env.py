"""`WebEnv`: a browser, a site and a task, one episode after the other."""

from __future__ import annotations

import asyncio
import atexit
import weakref
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from time import perf_counter
from typing import Any, TypeVar

from playwright.async_api import Browser
from playwright.async_api import Error as PlaywrightError

from agentkv_envs import hosts
from agentkv_envs.browser import BrowserHost
from agentkv_envs.browsergym import browsergym_observation
from agentkv_envs.contexts import ContextPool
from agentkv_envs.episode import Episode
from agentkv_envs.errors import ActionError, EnvError, InfraError
from agentkv_envs.loop import LoopThread
from agentkv_envs.observe import estimate_tokens
from agentkv_envs.options import EnvOptions, TokenCounter
from agentkv_envs.scoring import Judges, score_episode
from agentkv_envs.sites import World
from agentkv_envs.som import draw_marks
from agentkv_envs.types import Action, Observation, Score, StepResult, Task

T = TypeVar("T")
_RECYCLE_AFTER = 25
_GRACE_S = 15.0
# Judges are slow, and so are real hosts: evaluators may open many pages of them, a reset may take minutes.
_SCORING_S, _HOST_RESET_S = 300.0, 900.0
_open: weakref.WeakSet[WebEnv] = weakref.WeakSet()


class WebEnv:
    """A web environment in the manner of VisualWebArena, with its own embedded sites.

    Use it as a context manager. Plain methods block; methods whose name begins with `a` are their `async`
    twins and can be awaited from any event loop. One episode runs at a time, and calls made at once run one by one.

    Args:
        style, step_timeout_s, screenshots, scoring, observation, form, captions, max_tokens: see `EnvOptions`.
        executable: the Chromium to use; None searches (see `find_executable`).
        judges: who answers what no rule can tell; None: it stays unscored.
        count_tokens: counts the tokens of an observation, which is held to `max_tokens` of them.

    Attributes:
        judges: as given; evaluators ask them.
        start_ms: how long the last start of an episode took, to its first observation, once the browser was up.
    """

    def __init__(
        self,
        style: str = "label-first",
        step_timeout_s: float = 20.0,
        screenshots: bool = True,
        executable: str | None = None,
        *,
        scoring: str = "fixed",
        judges: Judges | None = None,
        observation: str = "compact",
        form: str = "full",
        captions: str = "noisy",
        max_tokens: int | None = None,
        count_tokens: TokenCounter = estimate_tokens,
    ):
        self._options = EnvOptions(style, observation, form, captions, max_tokens, scoring, step_timeout_s, screenshots)
        self.judges = judges
        self.start_ms = 0.0
        self._count_tokens = count_tokens
        self._host = BrowserHost(executable)
        self._contexts = ContextPool()
        self._logins = hosts.Logins()
        self._episode: Episode | None = None
        self._episodes = 0
        self._answer: str | None = None
        self._picture = b""
        self._turn = asyncio.Lock()
        self._thread = LoopThread("agentkv-web-env")
        _open.add(self)

    @property
    def options(self) -> dict[str, Any]:
        """All that decides what the agent sees and how it is scored, as plain values to store with results."""
        counter = "estimate" if self._count_tokens is estimate_tokens else "given"
        return {**self._options.as_dict(), "count_tokens": counter}

    # The same, blocking

    def reset(self, task: Task, seed: int = 0) -> Observation:
        """Start a task: fresh data of this seed, fresh browser context. See `areset`."""
        return self._wait(self._reset(task, seed), _HOST_RESET_S if task.external else 0.0)

    def step(self, action: Action) -> StepResult:
        """Carry out one action. See `astep`."""
        return self._wait(self._step(action))

    def evaluate(self) -> Score:
        """Score the episode as it stands. See `aevaluate`."""
        return self._wait(self._evaluate(), _SCORING_S)

    def preflight(self, tasks: Sequence[Task]) -> list[str]:
        """What is wrong with the real hosts the tasks need: those that do not answer or do not let in, one line each.

        Raises:
            EnvError: an address is missing, or none of the hosts answers.
        """
        return self._wait(self._preflight(tasks), _SCORING_S)

    def screenshot(self) -> bytes:
        """A JPEG of the current tab; the one taken at the last step where there is one."""
        return self._wait(self._screenshot())

    def browsergym(self, last_action: str = "", last_error: str = "") -> dict[str, Any]:
        """The current page as BrowserGym's dictionary; see `agentkv_envs.browsergym`."""
        return self._wait(self._browsergym(last_action, last_error))

    # The same, awaitable

    async def areset(self, task: Task, seed: int = 0) -> Observation:
        """Start a task; `start_ms` tells how long the first observation took once the browser was up.

        Raises:
            BrowserMissing: there is no Chromium.
            TaskError: the task names a site, placeholder, picture, table or column that does not exist.
            EnvError: the seed is no whole number.
            InfraError: the first page did not come.
        """
        return await self._await(self._reset(task, seed), _HOST_RESET_S if task.external else 0.0)

    async def astep(self, action: Action) -> StepResult:
        """Carry out one action; one that is impossible leaves the page as it is and says why in `error`.

        Raises:
            InfraError: the page hangs or the browser died; the episode is over, the next reset recovers.
            EnvError: there is no episode, or it has ended.
        """
        return await self._await(self._step(action))

    async def aevaluate(self) -> Score:
        """Score the episode as it stands, with the answer of `stop` ("" before it)."""
        return await self._await(self._evaluate(), _SCORING_S)

    async def ascreenshot(self) -> bytes:
        """See `screenshot`."""
        return await self._await(self._screenshot())

    async def abrowsergym(self, last_action: str = "", last_error: str = "") -> dict[str, Any]:
        """See `browsergym`."""
        return await self._await(self._browsergym(last_action, last_error))

    async def aclose(self) -> None:
        """See `close`."""
        await asyncio.to_thread(self.close)

    @property
    def task(self) -> Task | None:
        """The task of the running episode, its placeholders filled in (the oracle's too)."""
        return self._episode.task if self._episode is not None else None

    def close(self) -> None:
        """End the browser and everything else; safe to call twice."""
        if self._thread.closed:
            return
        _open.discard(self)
        self._thread.close(self._shut_down(), _GRACE_S)
        self._host.kill()

    def __enter__(self) -> WebEnv:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Threads and time

    def _submit(self, work: Coroutine[Any, Any, T], limit_s: float) -> Future[T]:
        try:
            return self._thread.submit(self._guard(work, limit_s))
        except EnvError:
            work.close()
            raise

    def _wait(self, work: Coroutine[Any, Any, T], least_s: float = 0.0) -> T:
        limit_s = max(self._options.step_timeout_s, least_s)
        future = self._submit(work, limit_s)
        try:
            return future.result(limit_s + _GRACE_S)
        except TimeoutError:
            self._host.kill()
            raise InfraError(f"the browser did not respond within {limit_s:g} s") from None
        except BaseException:
            future.cancel()
            raise

    async def _await(self, work: Coroutine[Any, Any, T], least_s: float = 0.0) -> T:
        limit_s = max(self._options.step_timeout_s, least_s)
        return await asyncio.wrap_future(self._submit(work, limit_s))

    async def _guard(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Hold the work to the time limit; whatever breaks the browser ends the episode."""
        try:
            async with self._turn:
                try:
                    return await asyncio.wait_for(work, limit_s)
                except TimeoutError:
                    await self._abandon()
                    raise InfraError(f"the page did not respond within {limit_s:g} s") from None
                except PlaywrightError as error:
                    await self._abandon()
                    raise InfraError(f"the browser failed: {str(error).strip().splitlines()[0]}") from None
                except InfraError:
                    await self._abandon()
                    raise
        finally:
            work.close()  # cancelled before its turn, it was never begun

    async def _abandon(self) -> None:
        """Give up the episode and its browser, so that nothing of it can trouble the next one."""
        episode, self._episode = self._episode, None
        await asyncio.to_thread(self._host.kill)
        if episode is not None:
            await episode.close()

    async def _shut_down(self) -> None:
        if self._episode is not None:
            await self._episode.close()
        await self._contexts.drain()
        await self._host.shut_down()

    # Work, on the environment's loop

    async def _reset(self, task: Task, seed: int) -> Observation:
        previous, self._episode = self._episode, None
        try:
            if self._episodes and self._episodes % _RECYCLE_AFTER == 0:
                await self._recycle(previous)
                previous = None
            browser = await self._host.get(hosts.host_names() if task.external else frozenset())
            self._episodes += 1
            self._answer, self._picture = None, b""
            observation = await self._begin(browser, task, seed)
        finally:
            # The browser has better things to do than close pages while a new one loads.
            if previous is not None:
                await self._contexts.retire(previous.close())
        if not task.external:
            self._contexts.prepare(browser)
        return observation

    async def _recycle(self, previous: Episode | None) -> None:
        """End the browser, and what ran in it: it takes more memory with every page."""
        if previous is not None:
            await self._contexts.retire(previous.close())
        await self._contexts.drain()
        await self._host.close()

    async def _begin(self, browser: Browser, task: Task, seed: int) -> Observation:
        began = perf_counter()
        episode = Episode(self._options, self._count_tokens)
        try:
            world = World(seed, task.split)
            await episode.start(browser, self._host.targets, self._contexts, task, world, self._logins)
            observation = await episode.observe()
        except BaseException:  # cancelled too: what has not come to its first observation is no episode
            await self._contexts.retire(episode.close())
            raise
        self._episode = episode
        self.start_ms = (perf_counter() - began) * 1e3
        if self._options.screenshots:
            await self._take_picture(episode)
        return observation

    async def _preflight(self, tasks: Sequence[Task]) -> list[str]:
        hosts.require(tasks)
        return await hosts.preflight(tasks, await self._host.get(hosts.host_names()), self._logins)

    def _running(self) -> Episode:
        if self._episode is None:
            raise EnvError("no episode is running; call reset first")
        return self._episode

    async def _step(self, action: Action) -> StepResult:
        episode = self._running()
        if self._answer is not None:
            raise EnvError("the episode has ended; call evaluate or reset")
        error: str | None = None
        timings = {"action": 0.0, "settle": 0.0}
        if action.kind == "stop":
            await episode.dismiss()
            self._answer = action.text or ""
        else:
            try:
                timings, error = await episode.act(action)
            except ActionError as reason:
                error = str(reason)
        began = perf_counter()
        observation = await episode.observe()
        timings["observe"] = (perf_counter() - began) * 1e3
        timings["screenshot"] = await self._take_picture(episode) if self._options.screenshots else 0.0
        return StepResult(observation, error, self._answer is not None, self._answer, timings)

    async def _evaluate(self) -> Score:
        return await score_episode(self._running(), self._answer or "", self._options.scoring, self.judges)

    async def _screenshot(self) -> bytes:
        if not self._picture or not self._options.screenshots:
            await self._take_picture(self._running())
        return self._picture

    async def _browsergym(self, last_action: str, last_error: str) -> dict[str, Any]:
        return await browsergym_observation(self._running(), last_action, last_error)

    async def _take_picture(self, episode: Episode) -> float:
        """Milliseconds it took; while a dialog blocks the page the last picture stays."""
        began = perf_counter()
        if not episode.blocked:
            picture = await episode.page().screenshot(type="jpeg", quality=60)
            if self._options.observation == "image_som" and episode.last is not None:
                picture = draw_marks(picture, episode.last.elements)
            self._picture = picture
        return (perf_counter() - began) * 1e3


def _close_all() -> None:
    for env in list(_open):
        env.close()


atexit.register(_close_all)
