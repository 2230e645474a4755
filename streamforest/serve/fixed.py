"""A model that does not change: the newest snapshot of a folder, or one file, without Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamforest.io.codec.events import BOUNDS
from streamforest.runtime.operate.model import OpenModel
from streamforest.runtime.processing.adapters import warm_up
from streamforest.serve.answering import Decoders, View

_TOP = 3


class FixedModel:
    """Answers as a replica does; it is of no commit, and never behind."""

    commit = -1

    def __init__(self, opened: OpenModel, name: str | None = None) -> None:
        """`name` is that of a shadow; by default the model that published answers."""
        opened.model(name)  # ConfigError where there is none
        self.decoders = Decoders.of(opened.rules, BOUNDS, opened.state.late is not None)
        self.top = _TOP
        self.on_commit: Callable[[int], None] = lambda commit: None
        self._view = View(opened.state, None, name or opened.publishes)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Load the kernels."""
        warm_up(self._view.state.models.values())

    def close(self) -> None:
        """Nothing is held."""

    def is_free(self) -> bool:
        """Whether nobody reads it at this moment."""
        return not self._lock.locked()

    def alive(self) -> bool:
        """Nothing can end."""
        return True

    def trouble(self) -> str | None:
        """Nothing can go wrong any more."""
        return None

    def behind_seconds(self) -> float | None:
        """Never behind."""
        return 0.0

    @contextmanager
    def reading(self) -> Iterator[View]:
        """The model."""
        with self._lock:
            yield self._view
