"""The log of a pipeline as one sees it who only looks on: reads the journal and its events, owns nothing.

It joins no group, so that it never gets a partition and no rebalance comes of it. It needs Read on the input
topics, on the journal and on the group, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from streamforest.errors import StreamForestError
from streamforest.io.kafka.permissions import Need
from streamforest.io.kafka.reader import KafkaJournal, KafkaReader, last_commit
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.log import Log, Partition, Transaction


def onlooker_log(settings: KafkaSettings) -> Log:
    """The log of a pipeline, or of the one partition that the settings name, to be read only."""
    role = _Onlooker(settings)
    return Log(role, role, OnlookerJournal(settings), role)


def needs_of_onlooker(settings: KafkaSettings) -> list[Need]:
    """The permissions that following a journal takes."""
    topics = settings.topics
    return [
        *(Need("Read", "topic", name) for name in topics.inputs),
        Need("Read", "topic", topics.journal),
        Need("Read", "group", settings.group),
    ]


class OnlookerJournal(KafkaJournal):
    """The journal, and the last commit of a group that this process is no member of."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.committed_only = settings.exactly_once

    def last_commit(self) -> str | None:
        """The metadata of the group's last commit, whichever process made it."""
        settings = self.settings
        return last_commit(
            settings.connection, settings.group, settings.topics.events, settings.partition
        )


class _Onlooker:
    """Source, sink and membership of a log that is only read again."""

    numbers_commits = True

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    def reader(self, positions: Mapping[Partition, int]) -> KafkaReader:
        """A reader of the input from these positions on."""
        return KafkaReader(self._settings.client(), positions)

    def lag(self) -> dict[Partition, int]:
        """Nothing is polled."""
        return {}

    def unread(self, positions: Mapping[Partition, int]) -> bool:
        """Whether the owner has work is not asked here."""
        return False

    def ends(self) -> dict[Partition, int]:
        """Nothing is polled."""
        return {}

    def at_end(self) -> bool:
        """Nothing is polled."""
        return True

    def keep_alive(self) -> None:
        """Nothing is owned."""

    def release(self) -> None:
        """Nothing is owned."""

    def trouble(self) -> str | None:
        """Whoever follows the journal reports it."""
        return None

    def poll(self, max_records: int, timeout: float) -> NoReturn:
        """Refuse."""
        raise self._refusal()

    def seek(self, positions: Mapping[Partition, int], times: Mapping[Partition, int]) -> NoReturn:
        """Refuse."""
        raise self._refusal()

    def commit(self, transaction: Transaction) -> NoReturn:
        """Refuse."""
        raise self._refusal()

    def try_acquire(self) -> NoReturn:
        """Refuse."""
        raise self._refusal()

    def _refusal(self) -> StreamForestError:
        return StreamForestError("this process only follows the pipeline, and owns nothing of it")
