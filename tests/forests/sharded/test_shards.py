"""Trees divided over shards: the same bits as in one process, whatever becomes of the shards on the way.

The shards are in this process, so that hundreds of their deaths take seconds; `tests/integration/test_ray.py`
has them in actors of Ray.
"""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coarse_stream import two_levels
from support.events import growing_stream
from support.shards import LocalCluster

from streamforest import (
    LEARN,
    PREDICT,
    AutoForestClassifier,
    ConsistentForestClassifier,
    FewShotForestClassifier,
    NCMForestClassifier,
    OnlineForestClassifier,
    StreamForestClassifier,
    load,
    save,
)
from streamforest.errors import (
    DependencyError,
    ExecutorError,
    ParameterError,
    SequenceError,
    StreamForestError,
)
from streamforest.forests.persistence.snapshot import encode
from streamforest.forests.sharded import driver, ray_actors

TREES = 20
N = 1_200
FORESTS = [
    pytest.param(
        StreamForestClassifier,
        {"ring_rows": 600, "max_ring_bytes": 150_000, "challenge_rate": 0.01, "max_nodes": 201},
        id="stream",
    ),
    pytest.param(StreamForestClassifier, {"balanced": True, "absent": "zero"}, id="stream-sparse"),
    pytest.param(ConsistentForestClassifier, {"max_fringe_bytes": 80_000}, id="consistent"),
    pytest.param(
        ConsistentForestClassifier, {"balanced": True, "voting": "hard"}, id="consistent-balanced"
    ),
    pytest.param(
        OnlineForestClassifier, {"balanced": True, "min_samples": 20, "gamma": 0.002}, id="online"
    ),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """Where the shards of `executor="ray"` live in a test."""
    cluster = LocalCluster()
    monkeypatch.setattr(ray_actors.RayCluster, "connected", lambda: cluster)
    return cluster


def events(n: int) -> tuple[list[dict[str, Any]], list[Any]]:
    """Classes, features and categories that appear on the way, and many more features in the end."""
    xs, ys = growing_stream(n)
    for i in range(3 * n // 4, n):
        xs[i] |= {f"late {j}": float(i % 7 + j) for j in range(i % 12)}
    return xs, ys


def run(model: Any, batch: int, n: int = N) -> tuple[list[bytes], bytes]:
    """What a model answers, and what it is in the end."""
    xs, ys = events(n)
    if batch == 1:
        said = []
        for x, y in zip(xs, ys):
            said.append(np.array(list(model.predict_proba_one(x).values())).tobytes())
            model.learn_one(x, y)
    else:
        said = [
            model.advance(xs[a : a + batch], ys[a : a + batch]).tobytes()
            for a in range(0, n, batch)
        ]
    return said, encode({"main": model})


def test_these_events_bring_all_that_shards_have_to_agree_on() -> None:
    stream, online = (
        forest.values[0](n_trees=TREES, seed=3, **forest.values[1])
        for forest in (FORESTS[0], FORESTS[-1])
    )
    rows, seeds = stream.summary()["ring_rows"], online._trees.tree["seed"].copy()
    for model in (stream, online):
        run(model, 500)
    found = stream.summary()
    assert found["ring_rows"] < rows  # the ring shrank
    assert min(found["challengers_grown"], found["swaps"], found["vote_power"]) > 0
    assert (online._trees.tree["seed"] != seeds).any()  # trees were discarded


@pytest.mark.parametrize(("kind", "params"), FORESTS)
@pytest.mark.parametrize("batch", [1, 7, 500])
def test_shards_give_the_bits_of_one_process(
    kind: Any, params: dict[str, Any], batch: int, cluster: LocalCluster
) -> None:
    """Classes, features and categories appear on the way; rings shrink, trees are challenged or restarted."""
    n = 150 if batch == 1 else N  # past the boundaries of the first epochs
    expected = run(kind(n_trees=TREES, seed=3, **params), batch, n)
    for actors in (2, 3):
        model = kind(n_trees=TREES, seed=3, executor="ray", n_actors=actors, **params)
        assert run(model, batch, n) == expected, actors
        assert len(cluster.alive) == actors
        assert len(model._trees[0]) == 0  # no tree is here
        del model
        assert not cluster.alive


@pytest.mark.parametrize(("kind", "params"), FORESTS)
def test_a_shard_may_die_at_any_call(
    kind: Any, params: dict[str, Any], cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has done what was asked, or after; with short and with long logs."""
    expected = run(kind(n_trees=TREES, seed=3, **params), 150)
    draw = np.random.default_rng(1)
    for log_bytes in (2_000, 40_000, 1 << 30):
        monkeypatch.setattr(driver, "MAX_LOG_BYTES", log_bytes)
        # far enough apart that no shard dies three times in one call
        at = cluster.asked + 4 + np.cumsum(draw.integers(6, 10, 10))
        cluster.dies_at = {int(number): bool(draw.random() < 0.5) for number in at}
        before = cluster.created
        model = kind(n_trees=TREES, seed=3, executor="ray", n_actors=3, **params)
        assert run(model, 150) == expected
        assert cluster.created > before + 6  # three were there at first


def test_rows_that_are_only_predicted_change_nothing_and_are_not_kept(
    cluster: LocalCluster,
) -> None:
    xs, ys = growing_stream(400)
    here, there = (
        StreamForestClassifier(n_trees=TREES, seed=1, executor=name) for name in ("threads", "ray")
    )
    for model in (here, there):
        model.advance(xs[:200], ys[:200])
    kept = len(there._shards._log), there._shards._number
    ops = [PREDICT, LEARN] * 50
    for model in (here, there):
        model.advance(xs[200:300])
    assert (len(there._shards._log), there._shards._number) == kept
    assert np.array_equal(
        here.advance(xs[300:], ys[300:], ops),
        there.advance(xs[300:], ys[300:], ops),
        equal_nan=True,
    )
    assert sum(len(step.X) for _, step in there._shards._log) == 250
    assert encode({"main": here}) == encode({"main": there})


def test_a_call_that_is_repeated_or_left_out_is_refused(cluster: LocalCluster) -> None:
    xs, ys = growing_stream(300)
    model = StreamForestClassifier(n_trees=TREES, seed=1, executor="ray")
    model.advance(xs, ys)
    before = encode({"main": model})
    shards = model._shards
    call = shards._log[-1]
    for number in (shards._number - 1, shards._number + 1, 0):
        for shard in shards._shards:
            with pytest.raises(SequenceError, match=rf"call {number} .* expects call"):
                cluster.ask(shard, "call", number, True, *call)
    assert encode({"main": model}) == before


def test_the_log_is_bounded_and_starts_at_the_newest_snapshot(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "MAX_LOG_BYTES", 30_000)
    xs, ys = growing_stream(N)
    model = ConsistentForestClassifier(n_trees=TREES, seed=1, executor="ray")
    most = 0
    for a in range(0, N, 40):
        model.advance(xs[a : a + 40], ys[a : a + 40])
        most = max(most, model._shards._log_bytes)
    assert 30_000 < most < 36_000  # the bound, and one batch
    assert len(cluster.kept) == 3
    replayed = len(model._shards._log)
    assert replayed < N // 40
    cluster.kill(model._shards._shards[0])
    model.predict_one(xs[0])
    one = ConsistentForestClassifier(n_trees=TREES, seed=1)
    one.advance(xs, ys)
    assert encode({"main": model}) == encode({"main": one})


def test_a_log_that_takes_long_to_learn_again_is_cut_off(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    xs, ys = growing_stream(100)
    model = ConsistentForestClassifier(n_trees=TREES, seed=1, executor="ray")
    model.advance(xs, ys)
    shards = model._shards
    assert len(shards._log) == len(cluster.kept) == 1
    shards._worked = driver.MAX_REPLAY_SECONDS + 1
    shards._took = 10.0  # a snapshot takes long: not yet
    model.predict_one(xs[0])
    assert len(shards._log) == 1
    shards._took = 0.1
    model.predict_one(xs[0])
    assert (len(shards._log), len(cluster.kept)) == (0, 2)


def test_a_shard_that_dies_again_and_again_ends_the_call(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    xs, ys = growing_stream(100)
    model = StreamForestClassifier(n_trees=TREES, seed=1, executor="ray")
    model.advance(xs[:50], ys[:50])
    cluster.dies_at = dict.fromkeys(range(cluster.asked, cluster.asked + 1_000), True)
    with pytest.raises(ExecutorError, match=r"trees 0 to 7 ended 3 times in one call: killed"):
        model.advance(xs[50:], ys[50:])
    cluster.dies_at = {}
    for use in (lambda: model.predict_one(xs[0]), lambda: copy.deepcopy(model)):
        with pytest.raises(StreamForestError, match="load the last snapshot"):
            use()


def test_a_shard_that_is_not_built_again_at_first_is_built_when_it_is_asked_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    xs, ys = growing_stream(200)
    one = StreamForestClassifier(n_trees=TREES, seed=1)
    model = StreamForestClassifier(n_trees=TREES, seed=1, executor="ray")
    for forest in (one, model):
        forest.advance(xs[:100], ys[:100])
    said = cluster.answer

    def no_room(asked: Any, starting: bool = False) -> Any:
        if starting:
            raise ExecutorError("an actor did not start within 600 s")
        return said(asked)

    cluster.kill(min(cluster.alive))
    monkeypatch.setattr(cluster, "answer", no_room)
    with pytest.raises(ExecutorError, match="did not start"):
        model.predict_one(xs[100])
    assert len(cluster.alive) == 1, "no half-built shard is left"
    monkeypatch.setattr(cluster, "answer", said)
    assert np.array_equal(model.advance(xs[100:], ys[100:]), one.advance(xs[100:], ys[100:]))
    assert encode({"main": model}) == encode({"main": one})


def test_actors_are_moved_without_having_both_at_once(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster may have CPUs for the new ones only once the old ones are gone."""
    xs, ys = growing_stream(100)
    model = StreamForestClassifier(n_trees=TREES, seed=1, executor="ray", n_actors=2)
    model.advance(xs, ys)
    alive, create = [], cluster.create

    def counted(*arguments: Any) -> int:
        shard = create(*arguments)
        alive.append(len(cluster.alive))
        return shard

    monkeypatch.setattr(cluster, "create", counted)
    model.n_actors = 3
    model.predict_one(xs[0])
    assert alive == [1, 2, 3]


@pytest.mark.parametrize("kind", [StreamForestClassifier, OnlineForestClassifier])
def test_the_executor_may_change_at_any_time_and_is_in_no_snapshot(
    kind: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    xs, ys = growing_stream(800)
    one = kind(n_trees=TREES, seed=1)
    model = kind(n_trees=TREES, seed=1)
    settings = [("ray", 2), ("ray", 3), ("threads", 3), ("ray", 2)]
    for a, (executor, actors) in zip(range(0, 800, 200), settings):
        model.executor, model.n_actors = executor, actors
        for b in (a, a + 100):
            expected = one.advance(xs[b : b + 100], ys[b : b + 100])
            assert np.array_equal(model.advance(xs[b : b + 100], ys[b : b + 100]), expected)
        assert len(cluster.alive) == (actors if executor == "ray" else 0)
        save(model, tmp_path / "model.safetensors")
        save(one, tmp_path / "one.safetensors")
        data = (tmp_path / "model.safetensors").read_bytes()
        assert data == (tmp_path / "one.safetensors").read_bytes()
        loaded = load(tmp_path / "model.safetensors")
        assert (loaded.executor, loaded.n_actors) == ("threads", 2)
        assert loaded.predict_proba_one(xs[0]) == one.predict_proba_one(xs[0])
        if a == 200:  # go on with what was loaded
            model = loaded


def test_copies_hold_all_trees_and_go_their_own_way(cluster: LocalCluster) -> None:
    xs, ys = growing_stream(600)
    one = StreamForestClassifier(n_trees=TREES, seed=1)
    model = StreamForestClassifier(n_trees=TREES, seed=1, executor="ray", n_actors=3)
    for forest in (one, model):
        forest.advance(xs[:300], ys[:300])
    copies = [copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))]
    assert len(cluster.alive) == 3  # a copy has no actors before it is used
    whole = encode({"main": one})
    for other in copies:
        assert encode({"main": other}) == whole
        assert other.summary()["nodes"] == one.summary()["nodes"]
    copies[0].advance(xs[300:], ys[300:])
    assert len(cluster.alive) == 6
    copies[1].executor = "threads"
    copies[1].advance(xs[300:], ys[300:])
    assert encode({"main": model}) == whole
    one.advance(xs[300:], ys[300:])
    assert encode({"main": copies[0]}) == encode({"main": copies[1]}) == encode({"main": one})
    clone = model.clone()
    assert (clone.executor, clone.n_actors, clone.n_learned) == ("ray", 3, 0)


@pytest.mark.parametrize("kind", [StreamForestClassifier, ConsistentForestClassifier])
def test_looking_inside_is_the_same(kind: Any, cluster: LocalCluster) -> None:
    xs, ys = growing_stream(500)
    one = kind(n_trees=TREES, seed=1)
    model = kind(n_trees=TREES, seed=1, executor="ray", n_actors=2)
    for forest in (one, model):
        forest.advance(xs, ys)
    sizes = ("ring_bytes", "plain_bytes", "total_bytes")  # as allocated
    for forest in (one, model):
        assert forest.summary()["trees"] == TREES
    a, b = ({k: v for k, v in m.summary().items() if k not in sizes} for m in (one, model))
    assert a == b
    assert model.debug_one(xs[0], tree=17) == one.debug_one(xs[0], tree=17)
    assert model.feature_importances() == one.feature_importances()
    assert np.array_equal(model.predict_trees(xs[:9]), one.predict_trees(xs[:9]))
    assert model.predict_one(xs[7]) == one.predict_one(xs[7])


def test_coarse_labels_have_shards_of_their_own(cluster: LocalCluster) -> None:
    xs, ys, coarse = two_levels(400, first_coarse=100)
    said = {}
    for executor in ("threads", "ray"):
        model = StreamForestClassifier(n_trees=TREES, seed=1, executor=executor, n_actors=2)
        answers = []
        for a in range(0, 300, 50):
            rows = slice(a, a + 50)
            told = model.answers(xs[rows], ys[rows], coarse=coarse[rows])
            answers += [
                part.tobytes() for part in (told.posteriors, told.coarse) if part is not None
            ]
        for x, y, name in zip(xs[300:], ys[300:], coarse[300:]):
            answers.append(repr(model.predict_proba_one(x, level="coarse")).encode())
            model.learn_one(x, y, coarse=name)
        said[executor] = answers, encode({"main": model})
    assert said["ray"] == said["threads"]
    assert len(cluster.alive) == 4


@pytest.mark.parametrize(
    "kind", [NCMForestClassifier, AutoForestClassifier, FewShotForestClassifier]
)
def test_forests_that_cannot_be_divided_name_those_that_can(
    kind: Any, cluster: LocalCluster
) -> None:
    model = kind(n_trees=16, seed=1)
    model.executor = "ray"
    with pytest.raises(ParameterError, match=r"'stream', 'consistent', 'online'"):
        model.learn_one({"a": 1.0}, "x")
    model.executor = "threads"
    model.learn_one({"a": 1.0}, "x")


def test_parameters_are_checked(cluster: LocalCluster) -> None:
    with pytest.raises(ParameterError, match="executor='rya': use one of 'threads', 'ray'"):
        StreamForestClassifier(executor="rya")
    with pytest.raises(ParameterError, match="n_actors=0"):
        StreamForestClassifier(n_actors=0)
    with pytest.raises(
        ParameterError, match=r"n_actors=4: use at most 3 for n_trees=17"
    ):  # 8, 8 and 1
        StreamForestClassifier(n_trees=17, executor="ray", n_actors=4)
    model = StreamForestClassifier(n_trees=17, executor="ray", n_actors=3)
    model.learn_one({"a": 1.0}, "x")
    model.n_actors = 4
    with pytest.raises(ParameterError, match=r"n_actors=4: use at most 3 for n_trees=17"):
        model.learn_one({"a": 1.0}, "x")
    assert [last - first for first, last in model._shards._cuts] == [8, 8, 1]


def test_actors_must_have_the_same_versions(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = driver.about()
    monkeypatch.setattr(driver, "about", lambda: {**here, "numba": "0.1"})
    model = StreamForestClassifier(executor="ray")
    with pytest.raises(ExecutorError, match=rf"numba {here['numba']} \(here 0\.1\)") as refused:
        model.learn_one({"a": 1.0}, "x")
    assert not cluster.alive, f"{refused.value} keeps no actor"


def test_a_missing_package_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    model = StreamForestClassifier(executor="ray")
    for use in (model.warm_up, lambda: model.learn_one({"a": 1.0}, "x")):
        with pytest.raises(
            DependencyError, match=r"^executor = 'ray' needs ray: pip install"
        ) as told:
            use()
        assert "streamforest[ray]" in str(told.value)
        assert "\n" not in str(told.value)


def test_warming_up_moves_no_tree(cluster: LocalCluster) -> None:
    model = StreamForestClassifier(n_trees=TREES, executor="ray")
    model.warm_up()
    assert not cluster.alive
    assert model.n_learned == 0
