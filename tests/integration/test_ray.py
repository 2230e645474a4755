"""One forest in actors of a real Ray: the bits of one process, also when actors or the program are killed.

Every way a shard can die is in `tests/forests/sharded`, without Ray.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.feed import events
from integration.waiting import until
from support.events import growing_stream
from support.processes import addresses, descendants

from streamforest import (
    ConsistentForestClassifier,
    OnlineForestClassifier,
    StreamForestClassifier,
)
from streamforest.errors import SequenceError
from streamforest.forests.persistence.snapshot import encode
from streamforest.forests.sharded import ray_actors
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.testing.plugin import missing
from streamforest.testing.process import Consumer

TREES = 20
PIPELINE = """
[pipeline]
name = "recorded"
[source]
file = "{file}"
[model]
kind = "stream"
n_trees = 16
[run]
batch_size = 100
commit_interval_events = 300
snapshot_interval_events = 600
"""
FILES = ("predictions.jsonl", "dead_letters.jsonl", "journal.jsonl")


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray on this machine, as a forest starts it."""
    if not ray_actors.is_installed():
        missing("ray is not installed: pip install 'streamforest[ray]'")
    patch = pytest.MonkeyPatch()
    patch.delenv(ray_actors.ADDRESS, raising=False)
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    ray = importlib.import_module(
        "ray"
    )  # as a program may have done: it must be on loopback all the same
    ray_actors.RayCluster.connected()
    assert signal.getsignal(signal.SIGTERM) is handler  # a pipeline still stops as it should
    assert ray_actors._LOOPBACK not in set(os.environ) - set(before)
    yield ray
    ray.shutdown()
    patch.undo()
    until(lambda: not below("ray"))


def below(name: str) -> list[int]:
    """The processes below this one with a name in their command."""
    return [pid for pid, command in descendants(os.getpid()).items() if name in command]


def check(ray: Any, kind: Any, actors: int, kills: list[int], n: int = 900) -> None:
    """Batches, then one by one, with an actor killed at some batches, beside a forest in one process."""
    xs, ys = growing_stream(n)
    one = kind(n_trees=TREES, seed=3)
    model = kind(n_trees=TREES, seed=3, executor="ray", n_actors=actors)
    draw = random.Random(1)
    for number, a in enumerate(range(0, n - 20, 80)):
        rows = slice(a, min(a + 80, n - 20))
        if number in kills:
            ray.kill(draw.choice(model._shards._shards))
        assert np.array_equal(model.advance(xs[rows], ys[rows]), one.advance(xs[rows], ys[rows])), a
    for x, y in zip(xs[-20:], ys[-20:]):
        assert model.predict_proba_one(x) == one.predict_proba_one(x)
        model.learn_one(x, y)
        one.learn_one(x, y)
    assert len(below("ray::Shard")) == actors
    assert encode({"main": model}) == encode({"main": one})
    shards = model._shards
    with pytest.raises(SequenceError, match="it would be repeated, or one left out"):
        ray.get(shards._shards[0].call.remote(shards._number - 1, True, *shards._log[-1]))
    assert encode({"main": model}) == encode({"main": one})
    del model, shards
    gc.collect()
    until(lambda: not below("ray::Shard"))


@pytest.mark.parametrize(
    ("kind", "actors"), [(StreamForestClassifier, 3), (ConsistentForestClassifier, 2)]
)
def test_actors_give_the_bits_of_one_process_and_one_may_be_killed(
    ray: Any, kind: Any, actors: int
) -> None:
    check(ray, kind, actors, kills=[6])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [StreamForestClassifier, ConsistentForestClassifier, OnlineForestClassifier]
)
@pytest.mark.parametrize("actors", [2, 3])
def test_actors_killed_again_and_again(ray: Any, kind: Any, actors: int) -> None:
    check(ray, kind, actors, kills=list(range(2, 60, 4)), n=4_800)


MACHINES = """
import os, sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on loopback
from ray.cluster_utils import Cluster
machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
first, second = machines.add_node(num_cpus=1), machines.add_node(num_cpus=1)
os.environ["RAY_ADDRESS"] = machines.address

import ray
from streamforest import StreamForestClassifier
from streamforest.errors import ExecutorError
from streamforest.forests.persistence.snapshot import encode
from streamforest.forests.sharded import ray_actors
from support.events import growing_stream

xs, ys = growing_stream(900)
one = StreamForestClassifier(n_trees=24, seed=1)
model = StreamForestClassifier(n_trees=24, seed=1, executor="ray")
for a in range(0, 900, 100):
    rows = slice(a, a + 100)
    assert (one.advance(xs[rows], ys[rows]) == model.advance(xs[rows], ys[rows])).all()
    if a == 300:
        actors = list(model._shards._shards)
        assert ray.available_resources().get("CPU", 0) == 0  # one actor on each machine
        machines.add_node(num_cpus=1)
        machines.remove_node(first, allow_graceful=False)
assert model._shards._shards != actors
assert encode({"main": one}) == encode({"main": model})
ray_actors.START_SECONDS, model.n_actors = 5, 3
try:
    model.predict_one(xs[0])
except ExecutorError as error:
    assert "each takes n_jobs CPUs, and the cluster has 2" in str(error), error
else:
    raise AssertionError("three actors on two machines")
model.n_actors = 2
assert model.predict_proba_one(xs[0]) == one.predict_proba_one(xs[0])
ray.shutdown()
machines.shutdown()
print("the same bits")
"""


@pytest.mark.slow
def test_a_cluster_that_loses_a_machine() -> None:
    """Three machines that are processes of this one, and one too few for a third actor."""
    if not ray_actors.is_installed():
        missing("ray is not installed: pip install 'streamforest[ray]'")
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", MACHINES], env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip().endswith("the same bits"), done.stderr[-3000:]


def test_all_of_ray_listens_on_loopback(ray: Any) -> None:
    found = addresses([os.getpid(), *below("ray")])
    assert found <= {"127.0.0.1", "::1"}
    assert found


def recorded(folder: Path, n: int) -> Path:
    """A pipeline on a recording, bad events among the good."""
    lines = [event.replace(b"\n", b" ") for event in events(n)]
    (folder / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    path = folder / "pipeline.toml"
    path.write_text(PIPELINE.format(file=folder / "events.jsonl"), encoding="utf-8")
    return path


def results(folder: Path) -> dict[str, bytes]:
    """What a run leaves behind."""
    (*_, last) = sorted((folder / "snapshots").glob("*.safetensors"))
    return {file.name: file.read_bytes() for file in (*(folder / name for name in FILES), last)}


def test_a_pipeline_goes_on_with_and_without_ray_and_leaves_the_same_bytes(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between two snapshots, so that it learns journalled events again."""
    monkeypatch.setenv("STREAMFOREST_QUIET", "1")
    path = recorded(tmp_path, 1_500)

    def run(name: str, executor: str, events: int | None = None) -> None:
        flags = [f"model.executor={executor}", f"run.folder={tmp_path / name}"]
        with opened(load_pipeline(path, {}, flags)) as started:
            if events is None:
                assert started.consume() == "finished"
            else:

                def end(run: Any) -> None:
                    if run.events >= events:
                        raise InterruptedError

                with pytest.raises(InterruptedError):
                    started.consume(watch=end)

    run("plain", "threads")
    run("divided", "threads", 700)
    run("divided", "ray")
    assert results(tmp_path / "divided") == results(tmp_path / "plain")


@pytest.mark.slow
def test_a_pipeline_killed_with_its_actors_leaves_the_same_bytes_and_no_process(
    tmp_path: Path,
) -> None:
    if not ray_actors.is_installed():
        missing("ray is not installed: pip install 'streamforest[ray]'")
    path = recorded(tmp_path, 6_000)
    runs = {name: ("--set", f"run.folder={tmp_path / name}") for name in ("plain", "killed")}
    with Consumer(path, "--quiet", *runs["plain"], folder=tmp_path) as consumer:
        consumer.expect_exit(0, 300)
    divided = (*runs["killed"], "--set", "model.executor=ray")
    for enough in (600, 2_500):
        with Consumer(path, "--quiet", *divided, folder=tmp_path) as consumer:
            consumer.until(lambda _, n=enough: committed(tmp_path / "killed") >= n, timeout=300)
            started = descendants(consumer.pid)
            assert sum("ray::Shard" in command for command in started.values()) == 2
            assert consumer.kill() == -9
        until(lambda of=started: not any(os.path.exists(f"/proc/{pid}") for pid in of))
    with Consumer(path, "--quiet", *divided, folder=tmp_path) as consumer:
        consumer.until(lambda _: committed(tmp_path / "killed") >= 4_000, timeout=300)
        assert consumer.stop() == 0, consumer.log()[-3000:]  # SIGTERM: a commit, a snapshot, an end
        assert committed(tmp_path / "killed") < 6_000
    with Consumer(path, "--quiet", *divided, folder=tmp_path) as consumer:
        consumer.expect_exit(0, 300)
    found, expected = results(tmp_path / "killed"), results(tmp_path / "plain")
    journals = found.pop("journal.jsonl"), expected.pop("journal.jsonl")
    assert found == expected
    assert journals[0] != journals[1]  # the stop made a commit of its own


def committed(folder: Path) -> int:
    """The event that a run has committed up to."""
    try:
        return int(json.loads((folder / "commit.json").read_bytes())["position"])
    except FileNotFoundError:
        return -1


def test_nothing_but_a_forest_that_asks_for_it_imports_ray(tmp_path: Path) -> None:
    path = recorded(tmp_path, 10)
    code = (
        "import sys; from pathlib import Path; "
        "from streamforest.runtime.config.load import load_pipeline; "
        f"load_pipeline(Path({str(path)!r}), {{}}, ['model.executor=ray']); "
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
