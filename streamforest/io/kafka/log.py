"""A Kafka topic as the log of a pipeline: read in a group (`source`), answered in transactions (`producer`).

Written against kafka-python; its bugs are worked around in `compat/workarounds`. Which partitions are ours is
known by `membership` or `partition_membership`; `retry` says what happens while the broker is away.
Everything here is called from one thread.
"""

from __future__ import annotations

from streamforest.io.kafka.membership import Assignment, KafkaMembership, TopicAssignment
from streamforest.io.kafka.producer import KafkaSink, TransactionalProducer
from streamforest.io.kafka.reader import KafkaJournal
from streamforest.io.kafka.retry import RetryPolicy
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.kafka.source import KafkaSource
from streamforest.io.log import Log


def kafka_log(settings: KafkaSettings, assignment: Assignment | None = None) -> Log:
    """The log of a pipeline on a broker; of the whole topic, unless an assignment says otherwise."""
    assignment = assignment or TopicAssignment(settings)
    producer = TransactionalProducer(settings.producer)
    membership = KafkaMembership(settings, assignment, producer, RetryPolicy(settings))
    return Log(
        KafkaSource(membership),
        KafkaSink(membership, producer),
        KafkaJournal(settings, assignment),
        membership,
    )
