"""The judge of a run with late labels: the rules told once more, plainly, over the journal's order.

Shares nothing with the runtime but the forests. One record at a time, one row at a time.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.oracle import Kinds, blocks, committed, fitting, in_order, read_all

from streamforest import LEARN
from streamforest.errors import InputError
from streamforest.forests.persistence import snapshot

IN_A_ROW = 50
Place = tuple[str, int, int]


@dataclass
class Clock:
    """Stream time as the documentation tells it."""

    step: int
    now: int | None = None
    run: list[int] = field(default_factory=list)

    def tick(self, at: int) -> list[int | None]:
        """[before, after] if entries without a time get one now, else []."""
        if at < 0 or (self.now is not None and at < self.now - self.step):
            return []
        if self.now is not None and at <= self.now + self.step:
            placed = self.now if self.run else None
            self.run.clear()
            self.now = max(self.now, at)
            return [] if placed is None else [placed]
        self.run.append(at)
        if len(self.run) < IN_A_ROW:
            return []
        self.now = sorted(self.run)[IN_A_ROW // 2]
        self.run.clear()
        return [self.now]


class Matching:
    """Events and labels by id, in plain dicts; bounds by number and time."""

    def __init__(self, wait: int, step: int, events: int = 10**9, early: int = 10**9) -> None:
        self.wait, self.most_events, self.most_early = wait, events, early
        self.clock = Clock(step)
        self.waiting: dict[Any, dict[str, Any]] = {}
        self.early: dict[Any, dict[str, Any]] = {}
        self.known: dict[Any, dict[str, Any]] = {}
        self.counts: Counter[str] = Counter()

    def over(self, entry: dict[str, Any] | None, at: int) -> bool:
        now = self.clock.now
        if now is not None and now <= at <= now + self.clock.step:
            now = at
        return entry is None or (
            entry["since"] is not None and now is not None and entry["since"] + self.wait < now
        )

    def tick(self, at: int) -> None:
        for placed in self.clock.tick(at):
            for kept in (self.waiting, self.early, self.known):
                for entry in kept.values():
                    if entry["since"] is None:
                        entry["since"] = placed
        now = self.clock.now
        if now is None:
            return
        for kept, outcome in (
            (self.waiting, "expired"),
            (self.early, "unmatched"),
            (self.known, ""),
        ):
            for identity, entry in list(kept.items()):
                if entry["since"] is None or entry["since"] + self.wait >= now:
                    break
                self.drop(kept, identity, outcome)

    def drop(self, kept: dict[Any, Any], identity: Any, outcome: str) -> None:
        del kept[identity]
        if outcome:
            self.counts[outcome] += 1
        if outcome == "expired":
            self.remember(identity, False)

    def stamp(self) -> int | None:
        return None if self.clock.run else self.clock.now

    def remember(self, identity: Any, labelled: bool) -> None:
        self.known.pop(identity, None)
        self.known[identity] = {"labelled": labelled, "since": self.stamp()}


@dataclass
class LateVerdict:
    """What the judge has counted."""

    events: int = 0
    labels: int = 0
    predictions: int = 0
    dead: int = 0
    commits: int = 0
    labelled: int = 0
    correct: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


def parsed(raw: bytes | None, only_labels: bool) -> dict[str, Any] | None:
    """A message as an event (with x) or a label (without); None if it is neither."""
    try:
        told = json.loads(raw or b"")
        assert isinstance(told, dict)
        assert told.get("v", 1) == 1
        y, identity = told.get("y"), told.get("id")
        assert y is None or isinstance(y, str | int | float | bool)
        assert identity is None or (isinstance(identity, str | int) and type(identity) is not bool)
        if only_labels or "x" not in told:
            assert y is not None
            assert identity is not None
            return {"id": identity, "y": y}
        x = told["x"]
        if isinstance(x, list):
            assert all(isinstance(v, int | float) for v in x)
            x = dict(enumerate(x))
        assert all(v is None or isinstance(v, int | float | str | bool) for v in x.values())
        return {"x": x, "id": identity, "y": y}
    except (ValueError, TypeError, AttributeError, AssertionError):
        return None


def read_answers(
    servers: str, name: str, lane: int | None = None
) -> tuple[dict[Place, dict[str, Any]], dict[Place, dict[str, bytes]], list[dict[str, Any]]]:
    """Predictions, dead letters and journal, of one partition where each has its own; asserts that
    nothing was published twice.
    """
    predictions: dict[Place, dict[str, Any]] = {}
    for records in read_all(servers, f"{name}.predictions").values():
        for record in records:
            told = json.loads(record.value)
            place = told["topic"], told["partition"], told["offset"]
            assert place not in predictions, f"two predictions for {place}"
            predictions[place] = told
    dead: dict[Place, dict[str, bytes]] = {}
    for records in read_all(servers, f"{name}.dlq").values():
        for record in records:
            headers = dict(record.headers)
            place = (
                headers["__streams.errors.topic"].decode(),
                int(headers["__streams.errors.partition"]),
                int(headers["__streams.errors.offset"]),
            )
            assert place not in dead, f"two dead letters for {place}"
            dead[place] = {**headers, "value": record.value}
    journals = read_all(servers, f"{name}.journal")
    (records,) = journals.values() if lane is None else [journals[lane]]
    if lane is not None:
        predictions = {place: one for place, one in predictions.items() if place[1] == lane}
        dead = {place: one for place, one in dead.items() if place[1] == lane}
    return predictions, dead, [json.loads(record.value) for record in records]


class LateJudge:
    """Replays a journal with late labels and compares everything."""

    def __init__(self, models: dict[str, Any], matching: Matching) -> None:
        self.models, self.match = models, matching
        self.verdict = LateVerdict()
        self.kinds: Kinds = {}

    def judge(
        self,
        servers: str,
        name: str,
        folder: Path,
        labels: str | None = None,
        lane: int | None = None,
    ) -> LateVerdict:
        topics = [f"{name}.events"] + ([labels] if labels else [])
        inputs: dict[Place, Any] = {
            (topic, p, record.offset): record
            for topic in topics
            for p, records in read_all(servers, topic).items()
            for record in records
            if lane in (None, p)
        }
        predictions, dead, journal = read_answers(servers, name, lane)
        assert not predictions.keys() & dead.keys()
        number, seen = 0, set()
        for commit, entry in enumerate(journal):
            assert (entry["commit"], entry["first"]) == (commit, number)
            for (topic, partition), first, end in in_order(entry):
                for offset in range(first, end):
                    place = topic, partition, offset
                    assert place not in seen, f"{place} twice in the journal"
                    seen.add(place)
                    expected = self.record(inputs[place], topic == labels, place, dead)
                    if expected is None:
                        assert place not in predictions, f"{place} has a prediction"
                    else:
                        given = predictions.pop(place)
                        assert (given["event"], given["commit"]) == (number, commit)
                        assert [tuple(pair) for pair in given["top"]] == expected[0], place
                        assert given["learned"] == expected[1], place
                        assert given["truth"] == expected[2], place
                    number += 1
            assert entry["events"] == number
        assert seen == inputs.keys(), f"{len(inputs.keys() - seen)} records were never taken"
        assert not predictions
        assert self.verdict.dead == len(dead)
        self.verdict.events, self.verdict.commits = number, len(journal)
        self.verdict.counts = self.match.counts
        said = committed(servers, name, topics[0])
        self.compare(folder, said[lane or 0][1], number)
        return self.verdict

    def record(
        self, record: Any, only_labels: bool, place: Place, dead: dict[Place, Any]
    ) -> tuple[Any, int, Any] | None:
        """What the prediction of a record has to say; None where it has none."""
        told = parsed(record.value, only_labels)
        if told is not None and "x" in told:
            told["x"] = fitting(told["x"], self.kinds)
        answer = None
        taken = False
        if told is not None:
            try:
                answer = self.event(told, record, dead) if "x" in told else self.label(told, record)
                taken = True
            except InputError:
                pass
        if not taken:
            letter = dead.get(place)
            assert letter is not None, f"{place}: {record.value[:80]!r} should be a dead letter"
            assert letter["value"] == record.value
            self.verdict.dead += 1
            self.verdict.reasons[letter["__streamforest.errors.reason"].decode()] += 1
        return answer

    def event(
        self, told: dict[str, Any], record: Any, dead: dict[Place, Any]
    ) -> tuple[Any, int, Any]:
        match, identity, at = self.match, told["id"], record.timestamp
        y, held = told["y"], None
        if y is None and identity is not None:
            held = match.early.get(identity)
            held = None if match.over(held, at) else held
        if held is not None:
            y = held["y"]
        learned = self.models["main"].n_learned
        before = {
            name: model.advance([told["x"]], [y])[0].tolist() for name, model in self.models.items()
        }
        guesses = {
            name: _best(values, self.models[name].classes_) for name, values in before.items()
        }
        if held is not None:
            del match.early[identity]
        match.tick(at)
        if told["y"] is not None:
            match.counts["at_once"] += 1
            if identity is not None:
                if match.early.pop(identity, None) is not None:
                    match.counts["duplicate"] += 1
                if identity not in match.waiting:
                    match.remember(identity, True)
        elif held is not None:
            match.counts["matched"] += 1
            match.remember(identity, True)
        elif identity is None or identity in match.waiting or identity in match.known:
            match.counts["never"] += 1
        else:
            match.waiting[identity] = {
                "x": told["x"],
                "guess": guesses["main"],
                "since": match.stamp(),
            }
            while len(match.waiting) > match.most_events:
                match.drop(match.waiting, next(iter(match.waiting)), "expired")
        if y is not None:
            self.verdict.labelled += 1
            self.verdict.correct += y == guesses["main"]
        self.verdict.predictions += 1
        pairs = list(zip(self.models["main"].classes_, before["main"]))
        likely = sorted(
            (p for p in enumerate(pairs) if p[1][1] > 0), key=lambda p: (-p[1][1], p[0])
        )
        return [pair for _, pair in likely[:3]], learned, y

    def label(self, told: dict[str, Any], record: Any) -> None:
        match, identity, y, at = self.match, told["id"], told["y"], record.timestamp
        entry = match.waiting.get(identity)
        if not match.over(entry, at):
            assert entry is not None
            for model in self.models.values():
                model.advance([entry["x"]], [y], [LEARN])
            del match.waiting[identity]
            match.tick(at)
            match.remember(identity, True)
            match.counts["matched"] += 1
            self.verdict.labelled += 1
            self.verdict.correct += y == entry["guess"]
        else:
            classes = self.models["main"].classes_
            if any(c == y and type(c) is not type(y) for c in classes):
                raise InputError("equal to a class of another type")
            match.tick(at)
            known = match.known.get(identity)
            if known is not None:
                match.counts["duplicate" if known["labelled"] else "unmatched"] += 1
            elif identity in match.early:
                match.counts["duplicate"] += 1
            else:
                match.early[identity] = {"y": y, "since": match.stamp()}
                match.counts["early"] += 1
                while len(match.early) > match.most_early:
                    match.drop(match.early, next(iter(match.early)), "unmatched")
        self.verdict.labels += 1

    def compare(self, folder: Path, said: dict[str, Any], events: int) -> None:
        """The last snapshot: each model's block, the label store and the sums are ours."""
        assert said["events"] == events
        assert said["snapshot"] == f"s-{events:012d}"
        path = folder / "snapshots" / f"{said['snapshot']}.safetensors"
        theirs, ours = blocks(path.read_bytes()), blocks(snapshot.encode(self.models))
        for name in self.models:
            assert theirs[name] == ours[name], f"the block of model {name} differs"
        runtime = snapshot.read(path)[1]
        totals = runtime["totals"]["main"]
        assert (totals["labelled"], totals["correct"]) == (
            self.verdict.labelled,
            self.verdict.correct,
        )
        assert totals["events"] == self.verdict.predictions
        store = runtime["labels"]
        for outcome, count in store["counts"].items():
            assert count == self.match.counts[outcome], (
                outcome,
                store["counts"],
                self.match.counts,
            )
        assert [one[0] for one in store["waiting"]] == list(self.match.waiting)
        assert [one[0] for one in store["early"]] == list(self.match.early)
        for one in store["waiting"]:
            assert base64.b64decode(one[1])


def _best(values: list[float], classes: list[Any]) -> Any:
    best = max(range(len(values)), key=lambda k: (values[k], -k), default=None)
    return None if best is None or values[best] <= 0 else classes[best]
