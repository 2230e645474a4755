"""What a run reports about itself while it works: typed events, for whoever listens.

Evaluation (`measures`), Prometheus (`prometheus`) and the live page's history (`history`) are listeners.
Events carry plain data; what is costly to find out is a function, which a listener calls only when it needs
the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streamforest.observe.evaluation import Totals


class Measured(Protocol):
    """What a listener reads of a model's evaluation."""

    @property
    def totals(self) -> Totals:
        """Sums over the whole stream."""


@dataclass(frozen=True, slots=True)
class LogOpened:
    """The run has a log. `trouble` may be asked from any thread, `lag` while handling an event."""

    trouble: Callable[[], str | None]
    lag: Callable[[], Mapping[tuple[str, int], int]]
    uncommitted_seconds: Callable[[], float] = lambda: 0.0
    """How long records have waited without a commit; may be asked from any thread."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """A poll brought records."""

    newest: Mapping[tuple[str, int], int]
    """Timestamp of the last record of each partition that brought any, in milliseconds."""


@dataclass(frozen=True, slots=True)
class ClassesBorn:
    """A batch that is about to be learned brings classes that no model has seen."""

    labels: Sequence[Any]
    learned: int
    """Events that the publishing model has learned before the batch."""
    learned_at: Sequence[int] = ()
    """Those that it has learned before each of the classes."""


@dataclass(frozen=True, slots=True)
class BatchAdvanced:
    """A model predicted and learned a batch."""

    model: str
    truth: Sequence[Any]
    """True labels, None where there is none."""
    predicted: Sequence[Any]
    seconds: float
    late: int
    """How many of them are late labels, of events that were counted without one before."""
    learned: int
    """Events that the model has learned since it began."""
    coarse_truth: Sequence[Any] = ()
    """True categories, of the events that have one."""
    coarse_predicted: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class BatchSampled:
    """What one event of a batch took, in seconds; `learn` is None where nothing was learned."""

    model: str
    predict: float
    learn: float | None
    rows: int


@dataclass(frozen=True, slots=True)
class NoveltyMeasured:
    """How new each event of a batch was to a model; infinite where it cannot tell."""

    model: str
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowsRead:
    """The records of a poll were judged, and the models went through those that were taken."""

    records: int
    labels: int
    """Records that were labels of other events."""
    predicted: int
    learned: int
    """Events that were learned, of this poll or of earlier ones whose label has come."""
    not_admitted: int
    """Events whose label is no class yet: predicted, not learned."""
    waiting: int
    """Events that wait for their label now."""


@dataclass(frozen=True, slots=True)
class EventRefused:
    """An event became a dead letter; where it was, and why."""

    reason: str
    place: str
    message: str


@dataclass(frozen=True, slots=True)
class RowsCounted:
    """What became of all events of the pipeline so far, by name."""

    counts: Mapping[str, int]
    values: Mapping[str, int]
    """Values that were not taken as they are, by reason."""


@dataclass(frozen=True, slots=True)
class LabelStatus:
    """What the store of late labels holds, and how labels have ended so far."""

    counts: Mapping[str, int]
    share: float | None
    waiting: int
    early: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LabelsRead:
    """A batch went through the store of late labels."""

    status: LabelStatus
    labels: int
    """Records that were labels."""
    delays: Sequence[float]
    """Seconds from an event to its label, for those that met."""


@dataclass(frozen=True, slots=True)
class LabelsRecovered:
    """The store of late labels is where the last commit left it."""

    status: LabelStatus


@dataclass(frozen=True, slots=True)
class IterationDone:
    """The main loop has completed an iteration."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The process is alive while it waits or recovers."""


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """The partitions were assigned again while the run owned some."""


@dataclass(frozen=True, slots=True)
class CommitDoubted:
    """The outcome of a commit is unknown, and the log has to be asked."""


@dataclass(frozen=True, slots=True)
class PendingDropped:
    """Another process has committed: what this one had read and not committed does not count."""


@dataclass(frozen=True, slots=True)
class CommitMade:
    """A commit was made."""

    seconds: float
    timestamps: Sequence[int]
    """Of its records, in milliseconds."""
    newest_class_at: float
    """When a class was last new, in seconds since 1970; 0 if never."""
    classes: Mapping[str, Sequence[Any]]
    """The classes of each model, in the order first seen."""
    events: int = 0
    """Events read so far, including those of earlier processes."""
    main: str = ""
    """The model that publishes."""
    measures: Mapping[str, Measured] = field(default_factory=dict)
    """The evaluation of each model; to be read while handling the event."""


@dataclass(frozen=True, slots=True)
class SnapshotStarted:
    """A snapshot was begun, and the stream waited this long for its copy."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """A snapshot became durable."""

    name: str
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelsChanged:
    """The models have learned, or were loaded."""

    summaries: Callable[[], Mapping[str, Mapping[str, Any]]]
    """Size and shape of each model, to be asked while handling the event; costly."""


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """A snapshot could not be written (`write`), or its own check refused it (`check`)."""

    reason: Literal["write", "check"]


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """Owner of so many partitions; or standby, at this event and so many behind the owner."""

    role: Literal["owner", "standby"]
    partitions: int
    events: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the run is at work; if not, why."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Followed:
    """A standby has followed the owner's commits up to this one."""

    commit: int
    unread: Callable[[], bool]
    """Whether there are records to read after it."""


TelemetryEvent = (
    LogOpened
    | Followed
    | RecordsRead
    | PendingDropped
    | ClassesBorn
    | BatchAdvanced
    | BatchSampled
    | NoveltyMeasured
    | RowsRead
    | RowsCounted
    | EventRefused
    | LabelsRead
    | LabelsRecovered
    | IterationDone
    | Heartbeat
    | Rebalanced
    | CommitDoubted
    | CommitMade
    | SnapshotStarted
    | SnapshotWritten
    | ModelsChanged
    | SnapshotFailed
    | RoleChanged
    | Readiness
)


class Listener(Protocol):
    """Hears what a run reports; called on the run's own thread."""

    def on_event(self, event: TelemetryEvent) -> None:
        """Take an event; those that are of no interest are ignored."""


class NullTelemetry:
    """Listens to nothing."""

    def on_event(self, event: TelemetryEvent) -> None:
        """Ignore it."""


class Listeners:
    """Several listeners, called in order."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def on_event(self, event: TelemetryEvent) -> None:
        """Pass it on to each."""
        for listener in self._listeners:
            listener.on_event(event)
