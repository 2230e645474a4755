"""`bench ray`: a small run with shards in this process, what follows from its figures, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.shards import LocalCluster

from streamforest.bench.sharding import Costs, Measured, costs, report
from streamforest.cli.bench import bench
from streamforest.forests.sharded import ray_actors
from streamforest.testing.plugin import missing


@pytest.fixture(autouse=True)
def ray_is_installed() -> None:
    """Its version is part of the report."""
    if not ray_actors.is_installed():
        missing("ray is not installed: pip install 'streamforest[ray]'")


def test_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LocalCluster()
    monkeypatch.setattr(ray_actors.RayCluster, "connected", lambda: cluster)
    options = ["--trees", "16", "--trees", "32", "--epochs", "1", "--rounds", "2"]
    file = tmp_path / "ray.json"
    told = CliRunner().invoke(bench, ["ray", *options, "--json", str(file)], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert cluster.created == 4
    for text in ("16 trees", "32 trees", "1 thread", "2 actors", "An epoch of 64 events", "ray 2."):
        assert text in told.stdout
    content = json.loads(file.read_text())
    assert content["benchmark"] == "ray"
    assert {(one["trees"], one["actors"]) for one in content["forests"]} >= {(16, 0), (32, 2)}
    assert set(content["costs"]) == {"actors_fixed", "threads_fixed", "per_tree"}


def test_the_break_even_is_where_both_take_as_long() -> None:
    """One thread: 1 ms and 0.5 ms a tree; two actors: 9 ms and half of that."""
    found = [
        Measured(trees, actors, 1, (9 if actors else 1) * 1e-3 + 0.5e-3 * trees / max(1, actors))
        for trees in (16, 64, 256)
        for actors in (0, 2)
    ]
    cost = costs(found)
    assert cost is not None
    assert (cost.actors_fixed, cost.threads_fixed, cost.per_tree) == pytest.approx(
        (9e-3, 1e-3, 0.5e-3)
    )
    for machines, cores in ((2, 1), (2, 4), (8, 16)):
        trees = cost.pays_from(machines, cores)
        assert trees is not None
        for n, pays in ((trees - 1, False), (trees + 1, True)):
            here = cost.threads_fixed + n * cost.per_tree / cores
            there = cost.actors_fixed + n * cost.per_tree / cores / machines
            assert (there < here) is pays
    assert Costs(9e-3, 1e-3, 0.0).pays_from(2, 1) is None
    assert costs(found[:2]) is None  # one size is no line
    assert "2 machines from" in report(found)
    assert "2 machines" not in report(found[:2])


def test_too_few_trees_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["ray", "--trees", "16", "--actors", "3"]
    told = CliRunner().invoke(bench, command)
    assert (told.exit_code, told.output) == (
        2,
        "Error: --actors 3: 16 trees are too few: 8 to an actor\n",
    )
    monkeypatch.setattr(ray_actors, "is_installed", lambda: False)
    told = CliRunner().invoke(bench, command)
    assert told.exit_code == 2
    assert told.output == "Error: bench ray needs ray: pip install 'streamforest[ray]'\n"
