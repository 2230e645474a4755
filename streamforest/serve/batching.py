"""Questions of many clients, answered together: what has come in while one batch was at work is the next one.

A batch gives bit for bit what its events give one by one, so nobody's answer depends on whose questions came
along. An idle server answers a single question at once; a busy one has larger batches and less work for each
event. A few events are answered by the event loop itself: to wake another thread and to be woken again takes
longer than they do. Many events, and those that have to wait for the model, are another thread's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from streamforest.serve.answering import Answer, Decoders, Question, Refusal, View, answer
from streamforest.serve.problems import Problem, unavailable

log = logging.getLogger(__name__)

MAX_ROWS = 512
"""Events of a batch, unless a single request has more."""
_AT_ONCE = 64  # events that the event loop answers itself
MAX_WAITING = 20_000
"""Events that wait for their batch; beyond them a question is refused."""

Answers = list[Answer | Refusal]


class Model(Protocol):
    """A replica, or a model that does not change."""

    decoders: Decoders
    top: int
    """Classes that an answer lists unless the request says how many."""
    on_commit: Callable[[int], None]

    @property
    def commit(self) -> int:
        """The commit that answers are of now; -1 where there is none."""

    def start(self) -> None:
        """Begin."""

    def close(self) -> None:
        """End."""

    def is_free(self) -> bool:
        """Whether the newest view can be had without waiting."""

    def alive(self) -> bool:
        """Whether it can still get better by itself; else the process is to be started again."""

    def trouble(self) -> str | None:
        """What keeps it from being up to date."""

    def behind_seconds(self) -> float | None:
        """How old answers may be; None before there are any."""

    def reading(self) -> AbstractContextManager[View]:
        """The newest view; Problem where there is none."""


class _Waiting:
    """A question, and who waits for its answers."""

    __slots__ = ("future", "question")

    def __init__(self, question: Question, future: asyncio.Future[Answers]) -> None:
        self.question, self.future = question, future


class Batcher(threading.Thread):
    """Takes questions from the event loop, and gives the answers back to it."""

    def __init__(self, model: Model, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="answers", daemon=True)
        self._model, self._loop = model, loop
        self._gathered: list[_Waiting] = []  # in this turn of the event loop
        self._queue: deque[_Waiting] = deque()
        self._rows = 0
        self._wake = threading.Condition()
        self._closing = False

    async def ask(self, question: Question) -> Answers:
        """The answers to a question; Problem if there are too many before it, or no model to ask."""
        if self._rows and self._rows + len(question.events) > MAX_WAITING:
            raise unavailable("busy", f"{self._rows:,} events wait already; try again")
        future: asyncio.Future[Answers] = self._loop.create_future()
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(_Waiting(question, future))
        return await future

    def _flush(self) -> None:
        """Answer what has come in this turn of the event loop, or hand it to the thread."""
        batch, self._gathered = self._gathered, []
        if not batch:
            return
        rows = sum(len(waiting.question.events) for waiting in batch)
        if rows <= _AT_ONCE and not self._rows and self._model.is_free():
            _deliver(batch, self._results(batch))
            return
        with self._wake:
            self._queue.extend(batch)
            self._rows += rows
            self._wake.notify()

    def close(self) -> None:
        """End, after what waits was answered."""
        self._flush()
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Answer until closed."""
        while batch := self._next():
            self._loop.call_soon_threadsafe(_deliver, batch, self._results(batch))

    def _results(self, batch: list[_Waiting]) -> list[Answers | Exception]:
        questions = [waiting.question for waiting in batch]
        try:
            return list(self._answer(questions))
        except Exception as error:  # of one question, or of the model: each by itself
            return self._one_by_one(questions) if len(batch) > 1 else [error]

    def _next(self) -> list[_Waiting]:
        """What waits, as far as it fits into a batch; nothing once closed."""
        with self._wake:
            while not self._queue and not self._closing:
                self._wake.wait()
            batch: list[_Waiting] = []
            rows = 0
            while self._queue and (
                not batch or rows + len(self._queue[0].question.events) <= MAX_ROWS
            ):
                waiting = self._queue.popleft()
                batch.append(waiting)
                rows += len(waiting.question.events)
            self._rows -= rows
            return batch

    def _answer(self, questions: list[Question]) -> list[Answers]:
        with self._model.reading() as view:
            try:
                return answer(view, questions, self._model.decoders)
            except BaseException:
                view.state.gate.take()  # what the error has left there
                raise

    def _one_by_one(self, questions: list[Question]) -> list[Answers | Exception]:
        results: list[Answers | Exception] = []
        for question in questions:
            try:
                results += self._answer([question])
            except Exception as error:
                results.append(error)
        return results


def _deliver(batch: list[_Waiting], results: list[Answers | Exception]) -> None:
    for waiting, result in zip(batch, results, strict=True):
        if waiting.future.done():  # the client has gone
            continue
        if isinstance(result, Exception):
            if not isinstance(result, Problem):
                log.error("a question could not be answered", exc_info=result)
            waiting.future.set_exception(result)
        else:
            waiting.future.set_result(result)
