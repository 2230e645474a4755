"""One owner for a topic: an assignor that gives every partition to one member of the group.

A forest that learns from all partitions lives in one process. Further processes of the same pipeline
get nothing and wait. The owner keeps its partitions when others join: each member sends the last
generation in which it owned them, and the member with the latest one gets them.
"""

from __future__ import annotations

from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

_VERSION = 0


class OneOwnerAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """All partitions to the member that owned them last, else to the first by id."""

    name = "streamforest-one-owner"

    def __init__(self) -> None:
        self._owned = -1

    def metadata(self, topics: Any) -> Any:
        """What this member sends when it joins: the last generation in which it owned everything."""
        user_data = str(self._owned).encode()
        return ConsumerProtocolSubscription(_VERSION, sorted(topics), user_data)

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        """The leader's decision."""
        owner = max(
            members, key=lambda m: (_owned_generation(m.metadata.user_data), m.member_id)
        ).member_id
        topics = {topic for member in members for topic in member.metadata.topics}
        everything = [
            (topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in topics
        ]
        return {
            member.member_id: ConsumerProtocolAssignment(
                _VERSION, sorted(everything) if member.member_id == owner else [], b""
            )
            for member in members
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Remember that this member owns the partitions, or no longer does."""
        self._owned = generation if assignment.partitions() else -1


def _owned_generation(user_data: bytes | None) -> int:
    try:
        return int(user_data or b"-1")
    except ValueError:
        return -1
