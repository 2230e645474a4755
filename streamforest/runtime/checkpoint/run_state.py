"""What a run has become: models, who was admitted, sums, positions. A function of the events alone."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamforest.errors import ChangedError, ConfigError, SnapshotError
from streamforest.io.log import Partition
from streamforest.jsonable import LARGEST_OFFSET, count, rows
from streamforest.observe.accounting import RowCounts
from streamforest.observe.evaluation import Totals
from streamforest.observe.measures import Evaluation, ModelMeasures
from streamforest.runtime.labels.store import LabelStore, LateRules
from streamforest.runtime.processing.adapters import Model
from streamforest.runtime.processing.admission import Admission, Limits
from streamforest.runtime.processing.models import parameters_of, take_run_time, wrap_model
from streamforest.text import shown

_FORMAT = 2


_RECENT = 5.0  # seconds


@dataclass
class Pace:
    """Events, and wall-clock seconds of the loop while there were records: commits, snapshots and all."""

    events: int = 0
    seconds: float = 0.0
    _recent: deque[tuple[float, int]] = field(default_factory=deque, repr=False)
    """When reading began, and how many events it brought; of the last seconds."""
    _first: float = field(default=math.inf, repr=False)
    """When this process began to read."""

    def add(self, events: int, seconds: float) -> None:
        """So many events were read and processed in the last `seconds`."""
        self.events += events
        self.seconds += seconds
        begun = time.monotonic() - seconds
        self._first = min(self._first, begun)
        self._recent.append((begun, events))
        while self._recent[0][0] < begun - _RECENT:
            self._recent.popleft()

    @property
    def rate(self) -> float:
        """Events a second, over the whole run."""
        return self.events / self.seconds if self.seconds > 0 else 0.0

    @property
    def recent_rate(self) -> float:
        """Events a second over the last seconds; 0 while nothing is read."""
        now = time.monotonic()
        since = max(self._first, now - _RECENT)
        events = sum(count for begun, count in self._recent if begun >= since)
        return events / max(now - since, 1e-3) if events else 0.0


@dataclass
class RunState:
    """All that a snapshot holds. `events` counts every record read, taken or not."""

    models: dict[str, Model]
    gate: Admission
    measures: Evaluation
    positions: dict[Partition, int] = field(default_factory=dict)
    events: int = 0
    rows: RowCounts = field(default_factory=RowCounts)
    pace: Pace = field(default_factory=Pace)
    main: str = ""
    """The model that publishes, where another than the first was promoted."""
    late: LabelStore | None = None
    """Who waits for whom, where labels come by themselves."""
    newest_at: float = 0.0
    """When a class was last new, by this machine's clock; nothing depends on it."""

    @classmethod
    def new(
        cls, models: Mapping[str, Model], limits: Limits, late: LateRules | None = None
    ) -> RunState:
        """Before the first event."""
        return cls(
            {name: model.clone() for name, model in models.items()},
            Admission(limits),
            Evaluation({name: ModelMeasures() for name in models}),
            late=None if late is None else LabelStore(late),
        )

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Size and shape of each model."""
        return {name: model.summary() for name, model in self.models.items()}

    def become(self, other: RunState) -> None:
        """Take over all that another state holds."""
        vars(self).update(vars(other))

    def plain(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """The run's own part of a snapshot: no clock, no commit number, nothing of this process."""
        return {
            "format": _FORMAT,
            "source": dict(source),
            "events": self.events,
            "positions": [[*partition, at] for partition, at in sorted(self.positions.items())],
            "totals": {name: measures.totals.state() for name, measures in self.measures.items()},
            "rows": self.rows.state(),
            "admission": self.gate.state(),
            **({"main": self.main} if self.main else {}),
            **({} if self.late is None else {"labels": self.late.state(list(self.models))}),
        }

    def passing(self) -> dict[str, Any]:
        """Windows, latencies and pace: nice to have, may be lost."""
        return {
            "models": {name: measures.passing_state() for name, measures in self.measures.items()},
            "pace": [self.pace.events, self.pace.seconds],
            "newest_at": self.newest_at,
        }

    @classmethod
    def restored(
        cls,
        models: Mapping[str, Any],
        plain: Mapping[str, Any],
        configured: Mapping[str, Model],
        limits: Limits,
        source: Mapping[str, Any],
        late: LateRules | None = None,
    ) -> RunState:
        """From a snapshot, after checking that it is of this very pipeline."""
        try:
            if plain["format"] != _FORMAT:
                raise ValueError(f"run format {plain['format']!r}, this version reads {_FORMAT}")
            _compare("source", source, plain["source"], source)
            wrapped = _checked_models(models, configured, source)
            store = _store(late, plain, list(wrapped))
            state = cls(
                models=wrapped,
                gate=Admission.from_state(limits, plain["admission"]),
                measures=Evaluation(
                    {
                        name: ModelMeasures(Totals.from_state(plain["totals"][name]))
                        for name in wrapped
                    }
                ),
                positions=_positions(plain["positions"]),
                events=count(plain["events"], "events"),
                rows=_row_counts(plain, wrapped, store),
                main=_main(plain, wrapped, source),
                late=store,
            )
        except (ChangedError, ConfigError, SnapshotError):
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotError(
                f"holds no run that can be resumed ({type(error).__name__}: {error})"
            ) from error
        return state

    def restore_passing(self, told: Mapping[str, Any]) -> None:
        """Restore windows, latencies and pace where they are known; else they start over, since
        nothing depends on them.
        """
        try:
            for name, measures in self.measures.items():
                measures.restore_passing(told["models"][name])
            events, seconds = told["pace"]
            if not all(math.isfinite(number) for number in (seconds, told["newest_at"])):
                raise ValueError("no time")
            self.pace = Pace(count(events, "pace"), float(seconds))
            self.newest_at = float(told["newest_at"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            return


def _positions(told: Any) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for topic, number, at in rows(told, "positions", 3):
        partition = str(topic), count(number, "partition")
        if type(topic) is not str or partition in found:
            raise ValueError(f"position of {topic!r:.60}-{number} twice, or of no topic")
        found[partition] = count(at, "position", LARGEST_OFFSET)
    return found


def _main(plain: Mapping[str, Any], models: Mapping[str, Model], source: Mapping[str, Any]) -> str:
    main = str(plain.get("main", ""))
    if main and main not in models:
        told = f"shadow.{main} was promoted and is no longer in the pipeline file"
        raise ChangedError(f"{told}; {_remedy(source)}")
    return main


def _store(
    rules: LateRules | None, plain: Mapping[str, Any], names: list[str]
) -> LabelStore | None:
    return None if rules is None else LabelStore.from_state(rules, plain["labels"], names)


def _row_counts(
    plain: Mapping[str, Any], models: Mapping[str, Model], store: LabelStore | None
) -> RowCounts:
    waiting = 0 if store is None else len(store.waiting)
    if "rows" in plain:
        return RowCounts.from_state(plain["rows"], waiting)
    learned = next(iter(models.values())).n_learned
    return RowCounts.unknown(count(plain["events"], "events"), learned, waiting)


def _checked_models(
    models: Mapping[str, Any], configured: Mapping[str, Model], source: Mapping[str, Any]
) -> dict[str, Model]:
    wrapped = {}
    for name, wanted in configured.items():
        table = "model" if name == "main" else f"shadow.{name}"
        if name not in models:
            raise ChangedError(
                f"{table} is new: a run keeps the models it began with; "
                f"{_remedy(source, 'remove it')}"
            )
        found = wrap_model(models[name])
        _compare(table, parameters_of(wanted), parameters_of(found), source)
        take_run_time(found, wanted)
        wrapped[name] = found
    return wrapped


def _compare(
    table: str, now: Mapping[str, Any], then: Mapping[str, Any], source: Mapping[str, Any]
) -> None:
    """Refuse to go on with other settings than the run began with, naming all of them."""
    keys = _told(table, now, then)
    if not keys:
        return
    changed = "; ".join(
        f"the content of {now['file']} is another than it was"
        if (table, key) == ("source", "checksum") and "file" in now
        else f"{table}.{key} is {now.get(key)!r} and was {then.get(key)!r}"
        for key in keys
    )
    raise ChangedError(f"the run was begun with other settings: {changed}; {_remedy(source)}")


def _told(table: str, now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """The keys that a person has changed, without those that follow from them: another kind of forest has
    other parameters, another file another length and checksum.
    """
    changed = [key for key in {**now, **then} if now.get(key) != then.get(key)]
    if table != "source":
        return ["kind"] if "kind" in changed else changed
    for key in ("topic", "file", "dataset"):
        if key in changed:
            return [key]
    own = [key for key in changed if key not in ("events", "checksum")]
    follows = "checksum" if "checksum" in changed and "file" in now else "events"
    return own or (["checksum"] if changed == ["checksum"] else [follows] if changed else [])


def _remedy(source: Mapping[str, Any], undo: str = "put it back") -> str:
    """How to go on, or to start over. What is on a broker stays there, so a run on Kafka starts over
    under another name, on the topics of the old one.
    """
    if "topic" not in source:
        return f"{undo}, or start over: --fresh replaces this run, another run.folder keeps it"
    topics = f"topics.events = {shown(source['topic'])}"
    if source.get("labels") not in (None, source["topic"]):
        topics += f" and topics.labels = {shown(source['labels'])}"
    return (
        f"{undo}, or start over with another pipeline.name and {topics} (kafka.group_id and "
        "run.folder, where the file sets them, change too)"
    )
