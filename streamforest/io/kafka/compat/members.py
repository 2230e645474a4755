"""The private members of kafka-python that this package uses, and the check that they are there."""

from __future__ import annotations

import dis
import inspect
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

from streamforest.errors import DependencyError

MEMBERS: dict[str, tuple[str, ...]] = {
    # reading
    "kafka.consumer.group:KafkaConsumer": (
        "_cluster",
        "_coordinator",
        "_fetcher",
        "_subscription",
    ),
    "kafka.consumer.subscription_state:SubscriptionState": ("assignment",),
    "kafka.consumer.subscription_state:TopicPartitionState": ("position",),
    "kafka.consumer.fetcher:Fetcher": (
        "PartitionRecords",
        "_handle_fetch_response",
        "_next_partition_records",
        "_paused_partition_records",
        "config",
    ),
    "kafka.consumer.fetcher:Fetcher.PartitionRecords": (
        "_consume_aborted_transactions_up_to",
        "_contains_abort_marker",
        "_is_batch_aborted",
        "_unpack_records",
        "aborted_producer_ids",
        "aborted_transactions",
        "bytes_read",
        "check_crcs",
        "drain",
        "isolation_level",
        "leader_epoch",
        "next_fetch_offset",
        "records_read",
        "take",
    ),
    "kafka.record.default_records:DefaultRecordBatch": ("_buffer", "_maybe_uncompress", "_pos"),
    "kafka.record.util:": ("calc_crc32c", "decode_varint"),
    # the group
    "kafka.coordinator.consumer:ConsumerCoordinator": (
        "_net",
        "_offset_fetch_futures",
        "fetch_committed_offsets_async",
        "heartbeat",
        "request_rejoin",
    ),
    "kafka.coordinator.heartbeat:Heartbeat": ("last_receive", "last_reset"),
    # writing
    "kafka.producer.kafka:KafkaProducer": ("_accumulator", "_sender", "_transaction_manager"),
    "kafka.producer.sender:Sender": ("_can_split", "_client", "force_close", "wakeup"),
    "kafka.producer.record_accumulator:RecordAccumulator": ("_batches", "_incomplete", "_tp_lock"),
    "kafka.producer.transaction_manager:TransactionManager": (
        "is_transactional",
        "maybe_add_partition_to_transaction",
    ),
    "kafka.producer.producer_batch:ProducerBatch": ("produce_future", "record_count"),
    "kafka.record.memory_records:MemoryRecordsBuilder": ("_builder", "_next_offset"),
    "kafka.record.default_records:DefaultRecordBatchBuilder": (
        "_buffer",
        "_first_timestamp",
        "_last_offset",
        "_max_timestamp",
        "_num_records",
    ),
    # connecting
    "kafka.net.compat:KafkaNetClient": ("await_ready", "close"),
    "kafka.net.manager:KafkaConnectionManager": (
        "_bootstrap_wakeup",
        "_conns",
        "_do_bootstrap",
        "_net",
        "call_soon",
        "cluster",
        "connection_delay",
        "get_connection",
        "least_loaded_node",
        "reset_backoff",
        "send",
    ),
    "kafka.net.connection:KafkaConnection": (
        "in_flight_requests",
        "initializing",
        "paused",
        "send_request",
    ),
    "kafka.cluster:ClusterMetadata": (
        "bootstrap_brokers",
        "broker_metadata",
        "brokers",
        "metadata_request",
        "start_refresh_loop",
        "update_metadata",
    ),
    "kafka.net.sasl:": ("get_sasl_mechanism",),
}
"""`module:class` -> members; `module:` alone -> functions of the module."""


def check_members() -> None:
    """DependencyError with the name of the first member that this release of kafka-python lacks."""
    for owner, members in MEMBERS.items():
        found = _owner(owner)
        for member in members:
            if found is None or not _has(found, member):
                raise incompatible(f"it has no {owner.replace(':', '.').rstrip('.')}.{member}")


def incompatible(details: str) -> DependencyError:
    """The error that says which release is installed and what differs in it."""
    return DependencyError(
        f"kafka-python {version('kafka-python')} does not work with this release of streamforest: "
        f"{details}. Install the release that streamforest's dependencies name"
    )


def _owner(name: str) -> Any | None:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
    except ImportError:
        return None
    for part in filter(None, path.split(".")):
        found = getattr(found, part, None)
    return found


def _has(owner: Any, member: str) -> bool:
    """Whether a class has the member, or its `__init__` gives it to each instance."""
    if hasattr(owner, member):
        return True
    return isinstance(owner, type) and any(member in _assigned(base) for base in owner.__mro__)


@cache
def _assigned(owner: type) -> frozenset[str]:
    """The attributes that the class's own `__init__` assigns, as its byte code says."""
    init = owner.__dict__.get("__init__")
    if not inspect.isfunction(init):
        return frozenset()
    code = dis.get_instructions(inspect.unwrap(init))
    return frozenset(step.argval for step in code if step.opname == "STORE_ATTR")
