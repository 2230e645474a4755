"""What `KafkaLog` does without asking its broker."""

from __future__ import annotations

import pytest
from kafka.errors import CorruptRecordError, KafkaConnectionError

from streamforest.errors import BrokerError
from streamforest.stream.decoders import by_value
from streamforest.stream.events import decoder
from streamforest.stream.kafka import KafkaLog
from streamforest.stream.kafka_patience import Patience
from streamforest.stream.kafka_settings import KafkaSettings
from streamforest.stream.kafka_topics import Topics
from streamforest.stream.records import Stopped


def test_a_stop_is_heeded_while_recovering() -> None:
    """Recovery can take minutes, and calls `idle` between two chunks."""
    asked = [False, True]
    settings = KafkaSettings("127.0.0.1:1", Topics.of("p"), "p")
    log = KafkaLog(settings, by_value(decoder()), stopping=lambda: asked.pop(0))
    log.idle()
    with pytest.raises(Stopped):
        log.idle()


def test_a_batch_that_stays_damaged_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamforest.stream.kafka_patience.time.sleep", lambda seconds: None)
    monkeypatch.setattr("streamforest.stream.kafka_patience.diagnose", lambda where: None)
    settings = KafkaSettings("127.0.0.1:1", Topics.of("p"), "p")
    patience = Patience(settings, lambda: False, lambda: True)
    for offset in (3, 4, 4, 4, 4):
        patience.wait_out("poll", CorruptRecordError(f"t-0 at offset {offset}: wrong checksum"))
        patience.wait_out("poll", KafkaConnectionError("away"))
        patience.recovered()  # other partitions are read meanwhile
    with pytest.raises(BrokerError, match="t-0 at offset 4"):
        patience.wait_out("poll", CorruptRecordError("t-0 at offset 4: wrong checksum"))
