"""Dead letters that are sent back: what was sent is remembered, and a source that cannot be read is told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaConnectionError

from streamforest.errors import BrokerError
from streamforest.io.codec.dead_letters import Letter
from streamforest.io.log import CommitInDoubt, OutputRecord
from streamforest.io.tools import dlq

TP = TopicPartition("events", 0)


def letter(reason: str = "too_large", truncated: int | None = 5_000_000) -> Letter:
    return Letter("events", 0, 7, reason, "", truncated, None, b"the beginn", [])


class Source:
    """A consumer of a topic that has the offsets 3 to 11; what its polls bring."""

    def __init__(self, *brings: Any) -> None:
        self.brings = list(brings)
        self.at = -1

    def beginning_offsets(self, tps: list[Any]) -> dict[Any, int]:
        return {TP: 3}

    def end_offsets(self, tps: list[Any]) -> dict[Any, int]:
        return {TP: 12}

    def assign(self, tps: list[Any]) -> None:
        """Only one."""

    def seek(self, tp: Any, at: int) -> None:
        self.at = at

    def position(self, tp: Any) -> int:
        return self.at

    def poll(self, **settings: Any) -> dict[Any, Any]:
        brought = self.brings.pop(0) if self.brings else None
        if brought is None:
            return {}
        self.at = brought + 1
        return {TP: [SimpleNamespace(offset=brought, key=b"k", value=b"the whole")]}

    def close(self, autocommit: bool = False) -> None:
        """Nothing is held."""


def test_a_source_that_brings_nothing_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq, "_consumer", lambda where, **settings: Source(None, None, 7))
    found = dlq._whole("", letter())
    assert found is not None
    assert (found.key, found.value) == (b"k", b"the whole")


def test_a_source_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq, "_READ_SECONDS", 0.0)
    monkeypatch.setattr(dlq, "_consumer", lambda where, **settings: Source())
    with pytest.raises(BrokerError, match="events-0@7 exists but cannot be read"):
        dlq._whole("", letter())


@pytest.mark.parametrize("gone", [2, 12, 7])
def test_a_place_that_is_gone_is_left_out(gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted, never there, compacted away."""
    monkeypatch.setattr(dlq, "_consumer", lambda where, **settings: Source(9))
    assert dlq._whole("", replace(letter(), offset=gone)) is None


def test_what_was_sent_back_is_remembered_by_reason() -> None:
    done = dlq._Done.read(None).upto("capacity", 10)
    done = dlq._Done.read(done.offset())
    assert [done.before(reason) for reason in (None, "capacity", "invalid")] == [0, 10, 0]
    assert done.has(letter("capacity"), 9)
    assert not done.has(letter("capacity"), 10)
    assert not done.has(letter("invalid"), 9)
    done = dlq._Done.read(done.upto("invalid", 20).upto(None, 15).offset())
    assert [done.before(reason) for reason in (None, "capacity", "invalid")] == [15, 15, 20]
    plain = done.upto(None, 20).offset()
    assert (plain.offset, plain.metadata) == (20, "")
    for i in range(1_000):
        done = done.upto(f"reason {i}", 100)
    with pytest.raises(BrokerError, match="too many single reasons"):
        done.offset()
    with pytest.raises(BrokerError, match="cannot read"):
        dlq._Done.read(SimpleNamespace(offset=1, metadata="[]"))


def test_a_broker_that_goes_away_while_listing_is_our_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*args: Any) -> None:
        raise KafkaConnectionError("gone")

    monkeypatch.setattr(dlq, "_check", away)
    with pytest.raises(BrokerError, match="dlq list: KafkaConnectionError"):
        list(dlq.letters("", "t", 3))


class Doubtful:
    """A producer whose transactions end in doubt: at first, and taken by the broker or not."""

    def __init__(self, doubts: int, taken: bool) -> None:
        self.doubts = doubts
        self.taken = taken
        self.calls: list[str] = []
        self.committed: Any = None
        self.offsets: Any = None

    def begin(self) -> None:
        self.calls.append("begin")

    def publish(self, messages: dict[str, list[OutputRecord]]) -> int:
        assert messages == {"events": [OutputRecord(b"v", b"k", [("h", b"1")], 3)]}
        self.calls.append("publish")
        return 0

    def add_offsets(self, offsets: dict[Any, Any], membership: str) -> None:
        assert membership == "p.dlq.replay"
        (self.offsets,) = offsets.values()

    def commit(self) -> None:
        self.doubts -= 1
        if self.doubts < 0 or self.taken:
            self.committed = self.offsets
        if self.doubts >= 0:
            raise CommitInDoubt("no answer")
        self.calls.append("commit")

    def replace(self) -> None:
        self.calls.append("replace")


def commit(producer: Any, monkeypatch: pytest.MonkeyPatch, back: list[Letter]) -> None:
    monkeypatch.setattr(dlq, "committed_now", lambda *args, **more: producer.committed)
    done = dlq._Done(20, {"invalid": 30})
    dlq._commit(producer, None, TP, "p.dlq.replay", back, done)
    assert dlq._Done.read(producer.committed) == done


BACK = [Letter("events", 3, 7, "invalid", "", None, b"k", b"v", [("h", b"1")])]


def test_a_transaction_in_doubt_is_made_again_only_if_it_did_not_take_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost, taken = Doubtful(2, taken=False), Doubtful(1, taken=True)
    commit(lost, monkeypatch, BACK)
    assert lost.calls == [*(["begin", "publish", "replace"] * 2), "begin", "publish", "commit"]
    commit(taken, monkeypatch, BACK)
    assert taken.calls == ["begin", "publish", "replace"]
    nothing = Doubtful(0, taken=False)
    commit(nothing, monkeypatch, [])  # letters that are left out: only their offset is committed
    assert nothing.calls == ["begin", "commit"]


def test_a_broker_that_never_commits_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Doubtful(99, taken=False)
    with pytest.raises(BrokerError, match="no answer, 8 times in a row: call it again"):
        commit(producer, monkeypatch, BACK)
    assert producer.calls.count("publish") == 8


def test_a_caller_may_take_longer_than_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done with a batch, such as a transaction, is not waiting for the next one."""
    now = [0.0]
    monkeypatch.setattr(dlq, "time", SimpleNamespace(monotonic=lambda: now[0]))
    read = []
    for record in dlq._records("127.0.0.1:9092", Source(9, 10, 11), TP, 9):
        read.append(record.offset)
        now[0] += 1_000.0
    assert read == [9, 10, 11]
