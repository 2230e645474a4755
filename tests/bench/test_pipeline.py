"""`bench pipeline` on a small scale: both shapes, both ways, every part of the time accounted for."""

from __future__ import annotations

import pytest

from streamforest.bench.pipeline.snapshot_stall import describe, measure_stall
from streamforest.bench.pipeline.throughput import GOALS, Parts, Result, measure, report
from streamforest.testing.broker.server import Broker


def parts(**seconds: float) -> Parts:
    each = {name: {"wall": spent, "cpu": spent / 2} for name, spent in seconds.items()}
    return Parts(each, events=1_000)


def test_the_share_is_the_median_of_the_rounds() -> None:
    bare = parts(poll=1.0, decode=1.0)
    rounds = [(bare, parts(poll=1.0, rest=spent)) for spent in (7.0, 1.0, 3.0)]
    result = Result("named", "packed", rounds)
    assert result.share("wall") == result.share("cpu") == pytest.approx(0.5)
    assert result.spread("wall") == pytest.approx((0.25, 1.0))
    text = report([result])
    assert "250 of      500 events/s    50% (25% to 100%; cpu time 50%)  goal 75%: missed" in text


def test_a_small_run(kafka_broker: Broker) -> None:
    results = measure(kafka_broker.servers, 1_000, rounds=1, partitions=3)
    assert [(r.shape, r.publishing) for r in results] == [
        (shape, way) for shape in ("named", "array") for way in GOALS
    ]
    text = report(results, "cpu")
    assert text.count("goal") == 4
    for result in results:
        (bare, whole), *_ = result.rounds
        assert bare.events == whole.events == 1_000
        assert set(bare.seconds) == {"poll", "decode", "advance"}
        assert all(spent["wall"] > 0 for spent in whole.seconds.values())


def test_the_stall_of_a_small_model() -> None:
    stall = measure_stall(megabytes=5)
    assert stall.megabytes >= 5
    assert stall.stall_seconds > 0
    assert "times (goal 3: " in describe(stall)
