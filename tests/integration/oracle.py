"""The judge of a run: reads the broker with a bare client and shares nothing with the runtime but
the forests.

Every input offset has exactly one committed prediction or dead letter; the journal, replayed here event
by event, gives the very same predictions, and for each model the same block of the last snapshot.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from streamforest.errors import InputError
from streamforest.forests.persistence import snapshot


def read_all(servers: str, topic: str) -> dict[int, list[Any]]:
    """Every committed record of a topic, by partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        enable_auto_commit=False,
        group_id=None,
    )
    partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    found: dict[int, list[Any]] = {tp.partition: [] for tp in partitions}
    for tp in partitions:
        consumer.seek(tp, consumer.beginning_offsets([tp])[tp])
    deadline = time.monotonic() + 120
    while any(consumer.position(tp) < ends[tp] for tp in partitions):
        assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
        for tp, records in consumer.poll(timeout_ms=300, max_records=5000).items():
            found[tp.partition].extend(records)
    consumer.close(autocommit=False)
    return found


def committed(servers: str, group: str, topic: str) -> dict[int, tuple[int, dict[str, Any]]]:
    """What the group has committed: offset and metadata by partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    out = {}
    for p in sorted(consumer.partitions_for_topic(topic)):
        at = consumer.committed(TopicPartition(topic, p), metadata=True, timeout_ms=20_000)
        out[p] = (at.offset, json.loads(at.metadata))
    consumer.close(autocommit=False)
    return out


@dataclass
class Verdict:
    """What the judge has counted."""

    events: int = 0
    predictions: int = 0
    dead: int = 0
    commits: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass
class Output:
    """What a run has published, by where it came from."""

    predictions: dict[tuple[int, int], dict[str, Any]]
    dead: dict[tuple[int, int], dict[str, bytes]]
    journal: list[dict[str, Any]]


def read_output(servers: str, name: str, repeats: bool = False, lane: int | None = None) -> Output:
    """Predictions, dead letters and journal; asserts that nothing was published twice.

    With a `lane` only those of that partition, which has a journal of its own.

    With `repeats` that may have happened, as at-least-once delivery says: the last one counts.
    """
    predictions: dict[tuple[int, int], dict[str, Any]] = {}
    for records in read_all(servers, f"{name}.predictions").values():
        for record in records:
            told = json.loads(record.value)
            for one in told if isinstance(told, list) else [told]:
                place = one["partition"], one["offset"]
                assert repeats or place not in predictions, (
                    f"two predictions: {predictions[place]} and {one} at {record.offset}"
                )
                predictions[place] = one
    dead: dict[tuple[int, int], dict[str, bytes]] = {}
    for records in read_all(servers, f"{name}.dlq").values():
        for record in records:
            headers = dict(record.headers)
            place = (
                int(headers["__streams.errors.partition"]),
                int(headers["__streams.errors.offset"]),
            )
            assert repeats or place not in dead, f"two dead letters for {place}"
            dead[place] = {**headers, "value": record.value}
    journals = read_all(servers, f"{name}.journal")
    (records,) = journals.values() if lane is None else [journals[lane]]
    journal = [json.loads(record.value) for record in records]
    if lane is not None:
        predictions = {place: one for place, one in predictions.items() if place[0] == lane}
        dead = {place: one for place, one in dead.items() if place[0] == lane}
    if repeats:
        journal = list({entry["commit"]: entry for entry in journal}.values())
    return Output(predictions, dead, journal)


def judge(
    servers: str,
    name: str,
    topic: str,
    model: Any,
    folder: Path,
    shadows: dict[str, Any] | None = None,
    repeats: bool = False,
    lane: int | None = None,
) -> Verdict:
    """Everything the design promises, checked; AssertionError names what does not hold."""
    inputs = {
        p: {r.offset: r for r in rs}
        for p, rs in read_all(servers, topic).items()
        if lane is None or p == lane
    }
    output = read_output(servers, name, repeats, lane)
    places = {(p, offset) for p, records in inputs.items() for offset in records}
    assert not output.predictions.keys() & output.dead.keys(), "both a prediction and a dead letter"
    answered = output.predictions.keys() | output.dead.keys()
    assert answered == places, (
        f"{len(places - answered)} events without an answer, {len(answered - places)} answers to none"
    )
    order = journal_order(output.journal, {p: len(records) for p, records in inputs.items()})
    verdict = Verdict(len(places), len(output.predictions), len(output.dead), len(output.journal))
    models = {"main": model, **(shadows or {})}
    kinds: Kinds = {}
    for number, (commit, place) in enumerate(order):
        record = inputs[place[0]][place[1]]
        expected = {key: answer(one, record.value, kinds) for key, one in models.items()}["main"]
        if expected is None:
            letter = output.dead.get(place)
            assert letter is not None, f"{place}: {record.value[:80]!r} should be a dead letter"
            assert letter["value"] == record.value
            reason = letter["__streamforest.errors.reason"].decode()
            verdict.reasons[reason] = verdict.reasons.get(reason, 0) + 1
            continue
        given = output.predictions.get(place)
        assert given is not None, f"{place} should have a prediction"
        assert (given["event"], given["commit"]) == (number, commit), place
        assert [tuple(pair) for pair in given["top"]] == expected[0], (place, given, expected)
        assert given["learned"] == expected[1], place
    last = committed(servers, name, topic)
    for p, records in inputs.items():
        assert last[p][0] == len(records), f"partition {p} is committed at {last[p][0]}"
    compare_snapshot(folder, last[min(inputs)][1], models, len(places))
    return verdict


def journal_order(
    journal: list[dict[str, Any]], sizes: dict[int, int]
) -> list[tuple[int, tuple[int, int]]]:
    """Commit and place of every event in the journal's order; every offset once, none left out."""
    assert [entry["commit"] for entry in journal] == list(range(len(journal))), "commit numbers"
    position = dict.fromkeys(sizes, 0)
    order: list[tuple[int, tuple[int, int]]] = []
    for entry in journal:
        assert entry["first"] == len(order)
        for (_, partition), first, end in in_order(entry):
            assert first == position[partition], "a slice does not go on where the last one ended"
            order += [(entry["commit"], (partition, offset)) for offset in range(first, end)]
            position[partition] = end
        assert entry["events"] == len(order)
    assert position == sizes
    return order


def in_order(entry: dict[str, Any]) -> list[tuple[tuple[str, int], int, int]]:
    """Partition, from and to of all that a journal record took, in order; offsets have no gaps here."""
    slices = [
        ((topic, number), first, end) for topic, number, first, end in entry.get("slices", [])
    ]
    if "order" not in entry:
        return slices
    assert entry["v"] == 2
    assert len({partition for partition, _, _ in slices}) == len(slices)
    position = [first for _, first, _ in slices]
    numbers, rest, shift = [], 0, 0
    for byte in base64.b64decode(entry["order"], validate=True):
        rest += (byte % 128) << shift
        shift += 7
        if byte < 128:
            numbers.append(rest)
            rest = shift = 0
    assert shift == 0
    order = []
    for number in numbers:
        less, index = divmod(number, len(slices))
        first, position[index] = position[index], position[index] + less + 1
        order.append((slices[index][0], first, position[index]))
    assert position == [end for _, _, end in slices]
    return order


Kinds = dict[Any, bool]
"""Of each column: whether its first value was a text."""


def fitting(x: dict[Any, Any], kinds: Kinds) -> dict[Any, Any]:
    """The features with None for a text in a column that began with a number."""
    for name, value in x.items():
        if value is not None:
            kinds.setdefault(name, isinstance(value, str))
    return {n: None if isinstance(v, str) and not kinds[n] else v for n, v in x.items()}


def answer(model: Any, raw: bytes, kinds: Kinds) -> tuple[list[tuple[Any, float]], int] | None:
    """What the model says of a message, then lets it learn; None if it is no event to be learned."""
    try:
        event = json.loads(raw)
        x, y = event["x"], event.get("y")
        assert event.get("v", 1) == 1
        if isinstance(x, list):
            x = dict(enumerate(x))
        assert all(isinstance(v, int | float | str | bool | None) for v in x.values())
        assert not (isinstance(event["x"], list) and any(isinstance(v, str) for v in x.values()))
        assert y is None or isinstance(y, str | int | float | bool)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
        return None
    x = fitting(x, kinds)
    forest = [*model.steps.values()][-1] if hasattr(model, "steps") else model
    learned = forest.n_learned
    try:
        if forest is model:
            before = model.advance([x], [y])[0].tolist()
            pairs = list(zip(model.classes_, before))
        else:
            if any(isinstance(v, str) for v in x.values()):
                return None
            if any(c == y and type(c) is not type(y) for c in forest.classes_):
                return None  # before the scaler has learned from it
            x = {name: value for name, value in x.items() if value is not None}
            pairs = list(model.predict_proba_one(x).items())
            if y is not None:
                model.learn_one(x, y)
    except InputError:
        return None
    likely = sorted((p for p in enumerate(pairs) if p[1][1] > 0), key=lambda p: (-p[1][1], p[0]))
    return [pair for _, pair in likely[:3]], learned


def compare_snapshot(
    folder: Path, said: dict[str, Any], models: dict[str, Any], events: int
) -> None:
    """The last commit names a snapshot at its own position, and each model's block is ours."""
    assert said["events"] == events
    assert said["snapshot"] == f"s-{events:012d}"
    data = (folder / "snapshots" / f"{said['snapshot']}.safetensors").read_bytes()
    assert hashlib.blake2b(data, digest_size=16).hexdigest() == said["hash"]
    theirs, ours = blocks(data), blocks(snapshot.encode(models))
    for name in models:
        assert theirs[name] == ours[name], f"the block of model {name} differs"


def blocks(data: bytes) -> dict[str, dict[str, Any]]:
    """Of each model in a snapshot's bytes: its metadata, and each tensor's type, shape and bytes."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    told = json.loads(header.pop("__metadata__")["streamforest"])
    found: dict[str, dict[str, Any]] = {name: {"": meta} for name, meta in told["models"].items()}
    for tensor, about in header.items():
        _, name, rest = tensor.split("/", 2)
        first, end = (8 + length + at for at in about["data_offsets"])
        found[name][rest] = about["dtype"], about["shape"], data[first:end]
    return found
