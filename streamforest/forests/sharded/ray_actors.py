"""Shards as actors of Ray: the only module that imports it, and only when a forest asks for it.

`RAY_ADDRESS` says which cluster. Without it a small one is started on this machine, on loopback, and ends
with this process. The address of a snapshot is a reference to its bytes in Ray's own object store: actors on
other machines need no shared folder and no credentials, and it is freed when nobody refers to it any more.

Ray restarts no actor and repeats no call by itself here: what is lost is built again by the forest, which
knows what the actor had learned.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, ClassVar

from streamforest.errors import DependencyError, ExecutorError
from streamforest.forests.sharded.driver import Lost
from streamforest.forests.sharded.shard import Shard, Step
from streamforest.text import printable

ADDRESS = "RAY_ADDRESS"
NEEDS = "needs ray: pip install 'streamforest[ray]'"
START_SECONDS = 600.0
"""How long an actor may take to start: a machine may have to be added, and to compile the kernels first."""
_LARGE = (
    100_000  # bytes from which on a step is put into the store once, and not sent to each actor
)
_MAX_MESSAGE = 300
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0": all of Ray's servers listen on 127.0.0.1

log = logging.getLogger(__name__)
_connecting = threading.Lock()


def is_installed() -> bool:
    """Whether there is a Ray to import."""
    return find_spec("ray") is not None


class RayCluster:
    """A cluster that this process is connected to; a `Cluster` of `driver.py`."""

    _started: ClassVar[str | None] = None  # the address of the one that was started here

    def __init__(self, ray: Any) -> None:
        self._there = ray
        self._local = ray.get_runtime_context().gcs_address == self._started

    @classmethod
    def connected(cls) -> RayCluster:
        """The one that this process uses already, the one at `RAY_ADDRESS`, or one that is started here."""
        address = os.environ.get(ADDRESS)
        with _connecting, _own_signals():
            try:
                ray = importlib.import_module("ray")
            except ImportError as error:
                raise DependencyError(f"executor = 'ray' {NEEDS}") from error
            if not ray.is_initialized():
                _start(ray, address)
                cls._started = None if address else ray.get_runtime_context().gcs_address
            return cls(ray)

    @property
    def _ray(self) -> Any:
        """Ray, while it runs: most of its functions would start another one."""
        if not self._there.is_initialized():
            raise ExecutorError("Ray was shut down, and the actors with it: load the last snapshot")
        return self._there

    def put(self, data: bytes) -> Any:
        """A reference to the bytes of a snapshot, in Ray's object store."""
        return self._ray.put(data)

    def share(self, step: Step) -> Any:
        """A step, or a reference to a large one."""
        return self._ray.put(step) if step.nbytes > _LARGE else step

    def create(self, address: Any, *arguments: Any) -> Any:
        """Begin to start an actor."""
        *_, threads = arguments
        actor = self._ray.remote(Shard).options(
            num_cpus=0 if self._local else threads,  # one machine has the cores that it has
            scheduling_strategy="SPREAD",
            max_restarts=0,
            max_task_retries=0,
        )
        return actor.remote(address, *arguments)

    def ask(self, shard: Any, method: str, *arguments: Any) -> Any:
        """Begin to call a method of an actor."""
        _ = self._ray  # with Ray shut down, the call itself would fail without a reason
        return getattr(shard, method).remote(*arguments)

    def answer(self, asked: Any, starting: bool = False) -> Any:
        """Wait for what it returns."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(asked, timeout=START_SECONDS if starting else None)
        except errors.RayTaskError:  # the actor is there, and has raised an error of its own
            raise
        except errors.GetTimeoutError as error:
            has = self._ray.cluster_resources().get("CPU", 0)
            free = self._ray.available_resources().get("CPU", 0)
            raise ExecutorError(
                f"an actor did not start within {START_SECONDS:.0f} s: each takes n_jobs CPUs, and the "
                f"cluster has {has:g}, {free:g} of them free"
            ) from error
        except errors.RayError as error:
            why = str(error).strip().rpartition("\n")[2].strip()  # the lines before it say where
            raise Lost(printable(why, _MAX_MESSAGE)) from error

    def end(self, shard: Any) -> None:
        """End an actor."""
        with contextlib.suppress(Exception):  # it, or all of Ray, may be gone already
            self._ray.kill(shard)


def _start(ray: Any, address: str | None) -> None:
    """Connect to a cluster, or start one for as long as this process lives."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            with _on_loopback():
                ray.init(address="local", num_cpus=1, include_dashboard=False, **quiet)
    except Exception as error:  # of many kinds
        cluster = f"the cluster at {ADDRESS}={address}" if address else "a local cluster"
        reason = printable(str(error).strip(), _MAX_MESSAGE)
        raise ExecutorError(f"Ray cannot use {cluster}: {reason}") from error
    log.info("connected to %s", f"Ray at {address}" if address else "a Ray started on this machine")


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Have a Ray that is started here listen on 127.0.0.1 only, as it does on systems without clusters."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before, clusters = os.environ.get(_LOOPBACK), constants.ENABLE_RAY_CLUSTER
    os.environ[_LOOPBACK] = "0"  # for the processes that it starts
    constants.ENABLE_RAY_CLUSTER = (
        False  # the same in this one, where Ray has read it when it was imported
    )
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = clusters
        os.environ.pop(_LOOPBACK)
        if before is not None:
            os.environ[_LOOPBACK] = before


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what this program does when it is asked to end: Ray would end it at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
