"""A replay is a pure function of its source and options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import MessageSizeTooLargeError

from streamforest.errors import BrokerError
from streamforest.io.sources.dataset import RecordedSource
from streamforest.io.sources.opening import open_file
from streamforest.io.tools import replay as module
from streamforest.io.tools.replay import ReplayOptions, messages, replay


def test_the_same_options_give_the_same_messages() -> None:
    source = RecordedSource.open("digits", events=200)
    options = ReplayOptions("t", partitions=3, loops=2, bad=0.1, seed=4)
    first, second = list(messages(source, options)), list(messages(source, options))
    assert first == second
    assert [m.partition for m in first] == [i % 3 for i in range(len(first))]
    assert len(first) > 420
    assert first != list(messages(source, ReplayOptions("t", partitions=3, loops=2, bad=0.1)))


def test_labels_come_late_by_id() -> None:
    source = RecordedSource.open("bananas", events=10)
    sent = list(messages(source, ReplayOptions("t", partitions=1, label_delay=4)))
    events = [json.loads(m.value) for m in sent if m.topic == "t"]
    labels = [json.loads(m.value) for m in sent if m.topic == "t.labels"]
    assert all("y" not in event for event in events)
    assert [label["id"] for label in labels] == [event["id"] for event in events]
    assert sent.index(next(m for m in sent if m.topic == "t.labels")) == 5
    assert [m.number for m in sent if m.topic == "t"] == list(range(10))
    assert [m.number for m in sent if m.topic == "t.labels"] == list(range(4, 14))


def test_vectors() -> None:
    source = RecordedSource.open("bananas", events=1)
    (one,) = messages(source, ReplayOptions("t", vectors=True))
    assert isinstance(json.loads(one.value)["x"], list)


def test_a_message_that_no_broker_takes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Producer:
        def send(
            self, topic: str, value: bytes, partition: int, timestamp_ms: int
        ) -> Callable[..., Any]:
            if len(value) > 1 << 20:
                raise MessageSizeTooLargeError("as kafka-python does")
            return lambda **settings: None

        def close(self, timeout: float) -> None:
            """Nothing is held."""

    monkeypatch.setattr(module, "prepare", lambda where, topics: dict(topics))
    monkeypatch.setattr(module, "_first_timestamp", lambda *asked: 0)
    monkeypatch.setattr(module, "connect", lambda *asked, **settings: Producer())
    (tmp_path / "e.jsonl").write_bytes(b'{"x": [1]}\n' * 3 + b"x" * 5_000_000)
    with pytest.raises(
        BrokerError, match=r"stopped after 3 messages: the next one is larger .* remove it"
    ):
        replay("", open_file(tmp_path / "e.jsonl"), ReplayOptions("t"))
