"""What a run has become: models, who was admitted, sums, positions. A function of the events alone."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamforest.errors import ChangedError, ConfigError, SnapshotError
from streamforest.forests.core.capacity import NUMBER, UNKNOWN
from streamforest.io.features.reader import EventReader
from streamforest.io.log import Partition, Records
from streamforest.jsonable import LARGEST_OFFSET, count, rows
from streamforest.observe.accounting import RowCounts
from streamforest.observe.evaluation import Totals
from streamforest.observe.measures import Evaluation, ModelMeasures
from streamforest.runtime.labels.store import LabelStore, LateRules
from streamforest.runtime.processing.adapters import Model, wrap_model
from streamforest.runtime.processing.admission import Admission
from streamforest.runtime.processing.limits import Limits
from streamforest.text import shown

_FORMAT = 2
MakeReader = Callable[..., EventReader]
"""Makes a reader of records by the pipeline's rules, with `max_columns` and `labels`."""


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
    times: dict[Partition, int] = field(default_factory=dict)
    """The highest record timestamp of each partition, where one had any: the merge goes on from it."""
    events: int = 0
    rows: RowCounts = field(default_factory=RowCounts)
    pace: Pace = field(default_factory=Pace)
    main: str = ""
    """The model that publishes, where another than the first was promoted."""
    late: LabelStore | None = None
    """Who waits for whom, where labels come by themselves."""
    reader: EventReader = field(default_factory=EventReader)
    """Layout of the records, and what each column holds."""
    newest_at: float = 0.0
    """When a class was last new, by this machine's clock; nothing depends on it."""

    @classmethod
    def new(
        cls,
        models: Mapping[str, Model],
        limits: Limits,
        late: LateRules | None = None,
        reader: MakeReader = EventReader,
    ) -> RunState:
        """Before the first event."""
        return cls(
            {name: model.clone() for name, model in models.items()},
            Admission(limits),
            Evaluation({name: ModelMeasures() for name in models}),
            late=None if late is None else LabelStore(late),
            reader=reader(max_columns=limits.max_features, labels=late is not None),
        )

    def degraded_values(self) -> dict[str, int]:
        """How many values were not taken as they are, by reason: they did not fit their column, or there was
        no room for them.
        """
        capacity = self.gate.capacity()
        return {
            "misfit": self.reader.columns.misfits(),
            "other": sum(capacity["other"].values()),
            "dropped": sum(capacity["dropped"].values()),
            "left_out": capacity["left_out"],
        }

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Size and shape of each model."""
        return {name: model.summary() for name, model in self.models.items()}

    def become(self, other: RunState) -> None:
        """Take over all that another state holds."""
        vars(self).update(vars(other))

    def passed(self, records: Records) -> None:
        """These records were taken, whatever became of each."""
        times = self.times
        for partition, record in zip(records.partitions, records.records, strict=True):
            if record.timestamp > times.get(partition, 0):
                times[partition] = record.timestamp
        for partition, record in records.last().items():
            self.positions[partition] = record.offset + 1
        self.events += len(records)

    def jsonable(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """The run's own part of a snapshot: no clock, no commit number, nothing of this process."""
        return {
            "format": _FORMAT,
            "source": dict(source),
            "events": self.events,
            "positions": _listed(self.positions),
            "totals": {name: measures.totals.state() for name, measures in self.measures.items()},
            "rows": self.rows.state(),
            "admission": self.gate.state(),
            "features": self.reader.state(),
            **self._coarse_totals(),
            **({"times": _listed(self.times)} if self.times else {}),
            **({"main": self.main} if self.main else {}),
            **({} if self.late is None else {"labels": self.late.state(list(self.models))}),
        }

    def _coarse_totals(self) -> dict[str, Any]:
        """Sums of categories, of models that were asked for any."""
        told = {n: m.coarse.state() for n, m in self.measures.items() if m.coarse.labelled}
        return {"coarse_totals": told} if told else {}

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
        jsonable: Mapping[str, Any],
        configured: Mapping[str, Model],
        limits: Limits,
        source: Mapping[str, Any],
        late: LateRules | None = None,
        reader: MakeReader = EventReader,
    ) -> RunState:
        """From a snapshot, after checking that it is of this very pipeline."""
        try:
            if jsonable["format"] != _FORMAT:
                raise ValueError(f"run format {jsonable['format']!r}, this version reads {_FORMAT}")
            _compare("source", source, jsonable["source"], source)
            wrapped = _checked_models(models, configured, source)
            gate = Admission.from_state(limits, jsonable["admission"])
            store = _store(late, jsonable, list(wrapped))
            state = cls(
                models=wrapped,
                gate=gate,
                measures=Evaluation(
                    {
                        name: ModelMeasures(
                            Totals.from_state(jsonable["totals"][name]),
                            _coarse(jsonable.get("coarse_totals", {}).get(name)),
                        )
                        for name in wrapped
                    }
                ),
                positions=_by_partition(jsonable["positions"], "position"),
                times=_by_partition(jsonable.get("times", []), "time"),
                events=count(jsonable["events"], "events"),
                rows=_row_counts(jsonable, wrapped, store),
                main=_main(jsonable, wrapped, source),
                late=store,
                reader=_reader(
                    reader(max_columns=limits.max_features, labels=late is not None),
                    jsonable.get("features"),
                    gate,
                    source,
                ),
            )
        except (ChangedError, ConfigError, SnapshotError):
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotError(
                f"holds no run that can be resumed ({type(error).__name__}: {error})"
            ) from error
        return state

    def restore_passing(self, passing: Mapping[str, Any]) -> None:
        """Restore windows, latencies and pace where they are known; else they start over, since
        nothing depends on them.
        """
        try:
            for name, measures in self.measures.items():
                measures.restore_passing(passing["models"][name])
            events, seconds = passing["pace"]
            if not all(math.isfinite(number) for number in (seconds, passing["newest_at"])):
                raise ValueError("no time")
            self.pace = Pace(count(events, "pace"), float(seconds))
            self.newest_at = float(passing["newest_at"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            return


def _coarse(state: Any) -> Totals:
    return Totals() if state is None else Totals.from_state(state)


def _listed(numbers: Mapping[Partition, int]) -> list[list[Any]]:
    return [[*partition, number] for partition, number in sorted(numbers.items())]


def _by_partition(listed: Any, what: str) -> dict[Partition, int]:
    found: dict[Partition, int] = {}
    for topic, number, value in rows(listed, f"{what}s", 3):
        partition = str(topic), count(number, "partition")
        if type(topic) is not str or partition in found:
            raise ValueError(f"{what} of {topic!r:.60}-{number} twice, or of no topic")
        found[partition] = count(value, what, LARGEST_OFFSET)
    return found


def _main(
    jsonable: Mapping[str, Any], models: Mapping[str, Model], source: Mapping[str, Any]
) -> str:
    main = str(jsonable.get("main", ""))
    if main and main not in models:
        gone = f"shadow.{main} was promoted and is no longer in the pipeline file"
        raise ChangedError(f"{gone}; {_remedy(source)}")
    return main


def _store(
    rules: LateRules | None, jsonable: Mapping[str, Any], names: list[str]
) -> LabelStore | None:
    return None if rules is None else LabelStore.from_state(rules, jsonable["labels"], names)


def _reader(
    reader: EventReader, state: Any, gate: Admission, source: Mapping[str, Any]
) -> EventReader:
    """What a run knew of its records; one that was begun before this was kept had nested ones only."""
    if state is None:
        known = [(n, k) for n, k in zip(gate.features.names, gate.features.kinds) if k != UNKNOWN]
        reader.adopt([name for name, _ in known], [kind == NUMBER for _, kind in known])
        return reader
    _compare("features", reader.rules.settings(), state["rules"], source)
    reader.restore(state)
    return reader


def _row_counts(
    jsonable: Mapping[str, Any], models: Mapping[str, Model], store: LabelStore | None
) -> RowCounts:
    waiting = 0 if store is None else len(store.waiting)
    if "rows" in jsonable:
        return RowCounts.from_state(jsonable["rows"], waiting)
    learned = next(iter(models.values())).n_learned
    return RowCounts.unknown(count(jsonable["events"], "events"), learned, waiting)


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
        _compare(table, wanted.parameters(), found.parameters(), source)
        found.take_run_time(wanted)
        wrapped[name] = found
    return wrapped


def _compare(
    table: str, now: Mapping[str, Any], then: Mapping[str, Any], source: Mapping[str, Any]
) -> None:
    """Refuse to go on with other settings than the run began with, naming all of them."""
    keys = _changed_keys(table, now, then)
    if not keys:
        return
    changed = "; ".join(
        f"the content of {now['file']} is another than it was"
        if (table, key) == ("source", "checksum") and "file" in now
        else f"{table}.{key} is {now.get(key)!r} and was {then.get(key)!r}"
        for key in keys
    )
    raise ChangedError(f"the run was begun with other settings: {changed}; {_remedy(source)}")


def _changed_keys(table: str, now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
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
