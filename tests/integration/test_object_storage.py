"""Pipelines on Kafka with their snapshots in a bucket: killed, taken over, spread over processes, adopted.

The long kill tests: python -m pytest -m slow -n0 -s tests/integration/test_object_storage.py; with
STREAMFOREST_TEST_S3 against a server of your own (.github/CONTRIBUTING.md).
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from integration.groups import (
    LANES,
    Group,
    Member,
    churned,
    in_every_way,
    kill_in_turn,
    ways,
)
from integration.serving import PROBES, Served
from integration.waiting import until
from support.object_store import ObjectServer, moto_server, object_server

from streamforest.cli import root
from streamforest.io.failpoints import NAMES
from streamforest.object_files import ObjectFolder
from streamforest.testing.broker.server import Broker

__all__ = ["moto_server", "object_server"]

_OF_SNAPSHOTS = [name for name in NAMES if "snapshot" in name]


class ObjectGroup(Group):
    """A group whose processes share a bucket, and no folder."""

    def __init__(self, broker: Broker, folder: Path, prefix: str, scope: str = "topic") -> None:
        super().__init__(broker, folder, scope)
        self.prefix = prefix
        self._machines = 0
        self.local = self.path.with_name("local.toml")
        text = self.path.read_text(encoding="utf-8")
        self.local.write_text(text, encoding="utf-8")
        self.path.write_text(
            text.replace("folder = ", f'snapshots = "{prefix}"\nfolder = '), encoding="utf-8"
        )

    def member(self, *arguments: str, **settings: Any) -> Member:
        """A process as on a machine of its own."""
        folder = self.folder / f"machine-{self._machines}"
        self._machines += 1
        return Member(self, "--set", f"run.folder={folder}", *arguments, **settings)

    def fetch(self) -> None:
        """The snapshots as files, where the judge looks for them."""
        below = [f"partition-{lane}" for lane in range(LANES)] if self.each else [""]
        for part in below:
            objects = ObjectFolder(f"{self.prefix}/{part}")
            assert objects.names()
            folder = self.folder / "run" / part / "snapshots"
            folder.mkdir(parents=True, exist_ok=True)
            for name in objects.names():
                (folder / name).write_bytes(objects.read(name))

    def judged(self) -> None:
        assert not list(self.folder.glob("**/s-*"))  # nothing was kept on a machine
        self.fetch()
        super().judged()

    def compare_undisturbed(self, counts: list[int]) -> None:
        with_bucket, self.path = self.path, self.local
        super().compare_undisturbed(counts)
        self.path = with_bucket


def kill_at(group: ObjectGroup, names: list[str]) -> None:
    """Kill an owner at each of these points, each on another machine; the last one reads to the end."""
    for name in names:
        group.feed(450)
        with group.member(failpoint=name) as owner:
            owner.expect_exit(-9)
    group.feed(100)
    with group.member("--drain") as last:
        last.expect_exit(0)
    group.judged()


def test_owners_killed_while_a_snapshot_is_uploaded(
    kafka_broker: Broker, tmp_path: Path, object_server: ObjectServer
) -> None:
    group = ObjectGroup(kafka_broker, tmp_path, object_server.prefix())
    kill_at(group, ["after-snapshot-write"])


@pytest.mark.slow
def test_owners_killed_at_every_point(
    kafka_broker: Broker, tmp_path: Path, object_server: ObjectServer
) -> None:
    group = ObjectGroup(kafka_broker, tmp_path, object_server.prefix())
    kill_at(group, [*NAMES, *_OF_SNAPSHOTS])


def test_a_standby_elsewhere_takes_over_and_a_replica_follows(
    kafka_broker: Broker, tmp_path: Path, object_server: ObjectServer
) -> None:
    group = ObjectGroup(kafka_broker, tmp_path, object_server.prefix())
    with ExitStack() as stack:
        owner = stack.enter_context(group.member())
        owner.until_ready()
        group.feed(900)
        until(lambda: group.committed() == group.sent)
        standby = stack.enter_context(group.member())
        standby.until(lambda one: one.stands_by())  # type: ignore[attr-defined]
        assert any("following from event" in m for m in standby.messages())
        assert "following from event 0" not in standby.messages()  # it began at a snapshot
        replica = stack.enter_context(Served(group.path))
        owner.kill()
        group.feed(300)
        until(lambda: group.committed() == group.sent)
        replica.until(lambda one: one.says()[0] == 200)  # type: ignore[attr-defined]
        assert "following from event 0" not in replica.messages()
        assert replica.ask("/predict", PROBES[0])[0] == 200
        standby.stop()
    group.judged()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_owners_are_killed_in_turn_and_standbys_take_over(
    kafka_broker: Broker, tmp_path: Path, object_server: ObjectServer
) -> None:
    group = ObjectGroup(kafka_broker, tmp_path, object_server.prefix())
    several = ways(list(NAMES), randoms=6, stops=2, seed=2)
    waits = kill_in_turn(group, several, size=2)
    group.drain()
    group.judged()
    print(
        f"\n{len(several)} owners of 2 processes, {group.sent:,} events: fail-over in "
        f"{statistics.median(waits):.1f} s (median), {max(waits):.1f} s at most; session 2 s"
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_members_with_a_forest_for_each_partition_die_in_every_way(
    kafka_broker: Broker, tmp_path: Path, object_server: ObjectServer
) -> None:
    group = ObjectGroup(kafka_broker, tmp_path, object_server.prefix(), "partition")
    print(churned(group, in_every_way(2), 2, seed=2))


@pytest.mark.slow
def test_partitions_move_between_machines_and_a_snapshot_is_adopted(
    kafka_broker: Broker, tmp_path: Path, object_server: ObjectServer
) -> None:
    group = ObjectGroup(kafka_broker, tmp_path, object_server.prefix(), "partition")
    with ExitStack() as stack:
        first = stack.enter_context(group.member())
        group.feed(900)
        until(lambda: group.committed() == group.sent)
        stack.enter_context(group.member())
        group.feed(900)
        until(lambda: group.committed() == group.sent)
        first.kill()
        group.feed(900)
        until(lambda: group.committed() == group.sent)
    with group.member("--drain") as last:
        last.expect_exit(0)
    group.judged()
    folder = ("--set", f"run.folder={tmp_path / 'machine-2'}")
    name = f"{group.prefix}/partition-0"
    oldest = min(n for n in ObjectFolder(name).names() if n.endswith(".safetensors"))
    done = CliRunner().invoke(
        root,
        [
            "snapshots",
            "adopt",
            str(group.path),
            oldest.partition(".")[0],
            "--partition",
            "0",
            *folder,
        ],
    )
    assert done.exit_code == 0, done.output
    assert "events learned again" in done.output
