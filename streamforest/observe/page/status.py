"""The status row: what is wrong with a run, and what to do about it; the worst first.

Each finding is judged by what the run reports now. Nothing is found before there are enough events to judge
by, so that a start is quiet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamforest.observe.history import History
from streamforest.observe.page.points import Point, share, total

Level = Literal["error", "warning", "info", "ok"]
_ORDER: tuple[Level, ...] = ("error", "warning", "info", "ok")

ENOUGH = 200
"""Labelled events from which accuracies are compared."""
_IDLE = 60.0  # seconds without an event
_BEHIND = 60.0  # seconds behind the end of the topics
_QUIET_COMMITS = 60.0  # seconds without a commit while events come
_POINTS = 0.02  # accuracy that makes a difference
_DROP = 0.10
_DEAD_SHARE = 0.01


@dataclass(frozen=True)
class Finding:
    """One line of the row."""

    level: Level
    what: str
    remedy: str = ""


def findings(
    history: History,
    pipeline_file: str,
    not_alive: str | None,
    not_ready: str | None,
    now: float,
    lately: Point,
) -> list[Finding]:
    """Everything that is worth saying, the worst first; at least one line. The history is locked."""
    found = [
        *_process(history, not_alive, not_ready),
        *_input(history, pipeline_file, now, lately),
        *_learning(history, pipeline_file, now, lately),
        *_output(history, now),
    ]
    if not any(one.level in ("error", "warning") for one in found):
        found.append(_well(history))
    return sorted(found, key=lambda one: _ORDER.index(one.level))


def _process(history: History, not_alive: str | None, not_ready: str | None) -> list[Finding]:
    if history.finished:
        return []
    if not_alive is not None:
        return [
            Finding(
                "error", _sentence(not_alive), "Restart the process; the log says where it hangs."
            )
        ]
    if history.role == "standby":
        if not_ready is not None:
            remedy = "It tries again by itself; the log has the details."
            return [Finding("warning", f"Standby, not ready: {not_ready}", remedy)]
        behind = f"{history.behind:,} events behind the owner" if history.behind else "up to date"
        return [Finding("info", f"Standby, {behind}. The owner's page shows the learning.")]
    if not_ready in ("starting", "recovering"):
        return [
            Finding("info", f"{_sentence(not_ready)} Nothing to do: events follow by themselves.")
        ]
    if not_ready is not None:
        remedy = (
            "It tries again by itself. If this stays, check the broker and the log of this process."
        )
        return [Finding("error", f"Not ready: {not_ready}", remedy)]
    return []


def _input(history: History, file: str, now: float, lately: Point) -> list[Finding]:
    found = []
    records = sum(lag for lag, _ in history.lags.values())
    seconds = max((s for _, s in history.lags.values() if s is not None), default=0.0)
    if records and seconds > _BEHIND:
        found.append(
            Finding(
                "warning",
                f"{records:,} records wait; the newest one read is {_age(seconds)} old.",
                "If this grows: fewer trees or shadows, a larger run.batch_size, or a faster machine.",
            )
        )
    idle = now - max(history.events_at, history.started_at)
    if history.role == "owner" and not history.finished and not records and idle > _IDLE:
        remedy = "Check that a producer writes to the topic of events."
        found.append(Finding("info", f"No event for {_age(idle)}; everything is read.", remedy))
    if lately.events >= ENOUGH and lately.refused > _DEAD_SHARE * lately.events:
        reasons = history.kept.reasons
        most = max(reasons, key=lambda reason: reasons[reason], default="")
        found.append(
            Finding(
                "warning",
                f"{_percent(lately.refused / lately.events)} of the last events became dead letters, most "
                f"often: {most}.",
                f"See them below, or with `streamforest dlq list {file}`; correct the producer, then "
                "send them back.",
            )
        )
    return found


def _learning(history: History, file: str, now: float, lately: Point) -> list[Finding]:
    found = []
    kept, labels = history.kept, history.labels
    since = max(kept.labelled_at, history.started_at)
    if lately.events >= ENOUGH and not lately.labelled and now - since > _IDLE:
        found.append(
            Finding(
                "warning",
                f"Events arrive, but none with a label for {_age(now - since)}: nothing is learned.",
                "Check the field y of the events, or the topic of labels.",
            )
        )
    if labels is not None:
        expired = labels.counts.get("expired", 0)
        decided = expired + labels.counts.get("matched", 0)
        if decided >= ENOUGH and expired > decided / 2:
            found.append(
                Finding(
                    "warning",
                    f"{_percent(expired / decided, 0)} of the events got no label in time.",
                    "Raise labels.expire_after_seconds, or check that labels bear their event's id.",
                )
            )
    window = total(history.window)
    models = accuracies(window)
    best = models.get(history.main)
    if best is None or window.labelled < ENOUGH:
        return found
    plain = window.no_change / window.labelled
    if best < plain - _POINTS:
        found.append(
            Finding(
                "warning",
                f"Repeating the last label would be right more often ({_percent(plain)}) than the model "
                f"({_percent(best)}).",
                "Add features that change with the label, or try another kind of forest as a [[shadow]].",
            )
        )
    overall = accuracies(history.overall).get(history.main)
    if overall is not None and history.overall.labelled >= 10 * ENOUGH and best < overall - _DROP:
        found.append(
            Finding(
                "warning",
                f"Accuracy is {_percent(best)}, after {_percent(overall)} over the whole run.",
                "Look below for new or confused classes. If it stays low, compare a `[[shadow]]` of "
                'kind = "auto" or "stream", which follow drift.',
            )
        )
    name = max(models, key=lambda one: models[one])
    if name != history.main and models[name] > best + _POINTS:
        found.append(
            Finding(
                "info",
                f"The shadow {name} is right more often ({_percent(models[name])}) than {history.main} "
                f"({_percent(best)}).",
                f"Let it publish: `streamforest promote {file} {name}`.",
            )
        )
    return found


def _output(history: History, now: float) -> list[Finding]:
    found = []
    committed_at = max(history.committed_at, history.started_at)
    waits = history.events_at > committed_at + _QUIET_COMMITS
    if history.role == "owner" and waits and not history.finished:
        found.append(
            Finding(
                "error",
                f"No commit for {_age(now - committed_at)}, though events arrive.",
                "Predictions wait. Check the broker; the log of this process names the error.",
            )
        )
    if history.snapshot_failure is not None:
        found.append(
            Finding(
                "error",
                "The last snapshot could not be written."
                if history.snapshot_failure == "write"
                else "The last snapshot was refused by its own check.",
                "Check space and rights of the run folder; nothing is lost, but a restart takes longer.",
            )
        )
    return found


def _well(history: History) -> Finding:
    if history.finished:
        return Finding("ok", "Finished: everything was read.")
    window = total(history.window)
    best = accuracies(window).get(history.main)
    if history.role == "standby":
        return Finding("ok", "Ready to take over.")
    if best is None:
        return Finding("info", "Waiting for the first labelled events.")
    return Finding(
        "ok", f"Learning: {_percent(best)} of the last {window.labelled:,} labels were right."
    )


def accuracies(point: Point) -> dict[str, float]:
    """Accuracy of each model."""
    found = {name: share(correct, labelled) for name, (labelled, correct) in point.models.items()}
    return {name: value for name, value in found.items() if value is not None}


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}\u00a0%"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _age(seconds: float) -> str:
    """A time span in one unit.

    >>> _age(75), _age(7300)
    ('75 s', '2 h')
    """
    for unit, size in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
