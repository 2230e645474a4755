"""A release of kafka-python without a member that we use is refused at import, by the member's name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.consumer.fetcher import Fetcher
from kafka.producer.sender import Sender
from kafka.record.memory_records import MemoryRecordsBuilder

from streamforest.errors import DependencyError
from streamforest.io.kafka.compat import batches, members, records


def test_every_member_is_there() -> None:
    members.check_members()
    batches.check_writing()
    records.check_reading()


@pytest.mark.parametrize(
    ("owner", "member", "name"),
    [
        (Sender, "_can_split", "kafka.producer.sender.Sender._can_split"),
        (
            Fetcher.PartitionRecords,
            "_unpack_records",
            "kafka.consumer.fetcher.Fetcher.PartitionRecords._unpack_records",
        ),
    ],
)
def test_a_method_that_is_gone_is_named(
    monkeypatch: pytest.MonkeyPatch, owner: Any, member: str, name: str
) -> None:
    monkeypatch.delattr(owner, member)
    with pytest.raises(DependencyError, match=rf"kafka-python \d\S* .* it has no {name}\. Install"):
        members.check_members()


def test_an_attribute_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute of instances is looked for in what `__init__` assigns."""

    def init(self: Any) -> None:
        self._cluster = self._fetcher = None

    monkeypatch.setattr(KafkaConsumer, "__init__", init)
    members._assigned.cache_clear()
    try:
        with pytest.raises(DependencyError, match=r"KafkaConsumer\._coordinator"):
            members.check_members()
    finally:
        members._assigned.cache_clear()


def test_a_module_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka.net.sasl", None)
    with pytest.raises(DependencyError, match=r"kafka\.net\.sasl\.get_sasl_mechanism"):
        members.check_members()


def test_other_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = MemoryRecordsBuilder.append

    def append(self: Any, timestamp: int, key: Any, value: Any, headers: Any) -> Any:
        return usual(self, timestamp, key, value and value + b"!", headers)

    monkeypatch.setattr(MemoryRecordsBuilder, "append", append)
    with pytest.raises(DependencyError, match="it writes other record batches"):
        batches.check_writing()


def test_the_check_runs_at_import() -> None:
    code = (
        "from kafka.producer.sender import Sender\n"
        "del Sender.force_close\n"
        "import streamforest.io.kafka.log\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DependencyError: kafka-python" in done.stderr
    assert "it has no kafka.producer.sender.Sender.force_close" in done.stderr
