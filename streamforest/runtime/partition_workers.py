"""A forest for each partition: partitions and their snapshots move between the processes of a group.

The main thread keeps this process in the group; each partition that it is given runs in a thread of its own,
with its own models, journal and snapshots, exactly as a pipeline with one partition would. The kernels let
go of Python's lock, so that partitions learn side by side. When a partition goes to another process, its
thread ends; the other one loads the snapshot from the folder that they share and replays the journal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from streamforest.io.kafka.partition_membership import GroupMember, partition_log
from streamforest.io.log import Stopped
from streamforest.observe.telemetry import Listener, NullTelemetry
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.factory import (
    Waiting,
    kafka_settings,
    new_run,
    prepared,
    snapshots_of,
)
from streamforest.runtime.processing.adapters import warm_up
from streamforest.runtime.processing.loop import Ending, Run, never

log = logging.getLogger(__name__)

_LOOK = 0.1  # seconds between two looks at what the threads are doing


class WorkersTelemetry(Protocol):
    """What the partition workers report."""

    def worker(self, number: int) -> Listener:
        """The listener of a partition's run; until `forget`."""

    def forget(self, number: int) -> None:
        """The partition is another process's now."""

    def report(self, partitions: int, trouble: str | None) -> None:
        """So many partitions are ours."""


class NullWorkersTelemetry:
    """Listens to nothing."""

    def worker(self, number: int) -> Listener:
        """Nothing is listened to."""
        return NullTelemetry()

    def forget(self, number: int) -> None:
        """Nothing was remembered."""

    def report(self, partitions: int, trouble: str | None) -> None:
        """Nothing is shown."""


Opening = Callable[[int, Callable[[], bool]], AbstractContextManager[Run]]
"""From a partition's number and whether to stop to its run, recovered."""


class Worker(threading.Thread):
    """The run of one partition, in a thread of its own."""

    def __init__(self, number: int, opening: Opening, stopping: Callable[[], bool]) -> None:
        super().__init__(name=f"partition-{number}", daemon=True)
        self.number = number
        self.run_: Run | None = None
        self.ending: Ending | None = None
        self.error: BaseException | None = None
        self._opening, self._stopping = opening, stopping

    def run(self) -> None:
        """Recover, then go on until the partition is lost, everything is read, or a stop."""
        try:
            with self._opening(self.number, self._stopping) as run:
                self.run_ = run
                self.ending = run.consume(stop=self._stopping)
        except Stopped as error:
            log.info("%s", error)
            self.ending = "stopped"
        except BaseException as error:  # told by the main thread
            self.error = error


class PartitionWorkers:
    """The workers of this process; `consume` until stopped, or until everything has been read."""

    def __init__(self, member: GroupMember, opening: Opening, telemetry: WorkersTelemetry) -> None:
        self.member = member
        self.telemetry = telemetry
        self.finished: dict[int, Worker] = {}
        """Partitions that were read to their end, where that was asked for."""
        self.workers: dict[int, Worker] = {}
        self._opening = opening
        self._stop = False

    def consume(self, stop: Callable[[], bool] = never) -> Ending:
        """Look after the group and the threads. An error in one partition stops all, cleanly."""
        error: BaseException | None = None
        while not self._done():
            self.member.look(_LOOK)
            self._stop = self._stop or stop()
            for worker in [w for w in self.workers.values() if not w.is_alive()]:
                self._retire(worker)
                if worker.error is not None:
                    self._stop, error = True, error or worker.error
            given = self.member.given
            if given is not None and not self._stop:
                for number in sorted(given.numbers - self.workers.keys() - self.finished.keys()):
                    self._start(number)
            self.telemetry.report(len(self.workers), self.member.trouble())
        if error is not None:
            raise error
        return "stopped" if self._stop else "finished"

    def _done(self) -> bool:
        """Nothing runs, and nothing more will."""
        if self.workers:
            return False
        given = self.member.given
        return self._stop or (
            given is not None and bool(given.numbers) and given.numbers <= self.finished.keys()
        )

    def _start(self, number: int) -> None:
        worker = Worker(number, self._opening, lambda: self._stop)
        self.workers[number] = worker
        worker.start()

    def _retire(self, worker: Worker) -> None:
        del self.workers[worker.number]
        if worker.ending == "finished":
            self.finished[worker.number] = worker
        self.telemetry.forget(worker.number)


@contextmanager
def opened_workers(
    pipeline: Pipeline,
    *,
    drain: bool = False,
    create_topics: bool = False,
    accept_version_change: bool = False,
    telemetry: WorkersTelemetry | None = None,
    waiting: Waiting = nullcontext,
) -> Iterator[PartitionWorkers]:
    """This process as a member of its group, its kernels compiled; it leaves at the end."""
    listener = NullWorkersTelemetry() if telemetry is None else telemetry
    with prepared(pipeline, create_topics, waiting):
        warm_up(pipeline.models.values())
        member = GroupMember(kafka_settings(pipeline))
        recovered: set[int] = set()

        @contextmanager
        def opening(number: int, stopping: Callable[[], bool]) -> Iterator[Run]:
            log_ = partition_log(kafka_settings(pipeline), member, number)
            try:
                run = new_run(
                    pipeline,
                    log_,
                    snapshots_of(pipeline, number),
                    drain,
                    listener.worker(number),
                    {"partition": number},
                    accept_version_change,
                    stopping,
                )
                run.ownership.at_work = bool(recovered)
                run.recover()
                recovered.add(number)
                yield run
            finally:
                log_.close()

        with waiting():
            member.join()
        try:
            yield PartitionWorkers(member, opening, listener)
        finally:
            member.close()
