"""What `KafkaLog` does without asking its broker."""

from __future__ import annotations

import pytest

from streamforest.stream.decoders import by_value
from streamforest.stream.events import decoder
from streamforest.stream.kafka import KafkaLog
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
