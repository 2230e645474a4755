"""Prices and a new class every 25 events, through a stream forest that is killed and restarted 20 times.

A class' first event once left a variance just below zero, which a start refused: after the first kill there
was no snapshot left to go on from.
"""

from __future__ import annotations

import json
import random
from itertools import cycle, islice
from pathlib import Path

import pytest

from streamforest.testing import FAILPOINTS
from streamforest.testing.forked import ForkedConsumer

EVENTS, NEW_CLASS, KILLS = 3_000, 25, 20
PIPELINE = """
[pipeline]
name = "prices"
[source]
file = "{file}"
[model]
kind = "stream"
n_trees = 4
seed = 1
[run]
batch_size = 25
commit_interval_events = 50
snapshot_interval_events = 100
folder = "{folder}"
"""


def prices(n: int) -> list[str]:
    """Prices that wander, in cents, of ever more shares; and one that is a constant."""
    draw = random.Random(12)
    last: list[float] = []
    lines = []
    for event in range(n):
        if event % NEW_CLASS == 0:
            last.append(round(draw.uniform(1.0, 5_000.0), 2))
            share = len(last) - 1
        else:
            share = draw.randrange(len(last))
        last[share] = round(last[share] * draw.uniform(0.99, 1.01) + 0.01, 2)
        spread = round(draw.uniform(0.01, 0.2), 2)
        x = {
            "bid": last[share],
            "ask": round(last[share] + spread, 2),
            "volume": draw.randrange(1, 100_000),
            "fee": 0.1,
        }
        lines.append(json.dumps({"x": x, "y": f"share-{share}"}))
    return lines


def pipeline(folder: Path, name: str) -> Path:
    path = folder / f"{name}.toml"
    text = PIPELINE.format(file=folder / "events.jsonl", folder=folder / name)
    path.write_text(text, encoding="utf-8")
    return path


def finish(path: Path) -> dict[str, bytes]:
    """The last life, and what it leaves behind: a snapshot at the very end among it."""
    with ForkedConsumer(path, "--quiet", folder=path.parent) as consumer:
        consumer.expect_exit(0, 300)
        assert "no snapshot" not in consumer.log()
    files = ["predictions.jsonl", "journal.jsonl", f"snapshots/s-{EVENTS:012d}.safetensors"]
    return {name: (path.with_suffix("") / name).read_bytes() for name in files}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_prices_and_new_classes_through_twenty_kills(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("\n".join(prices(EVENTS)) + "\n", encoding="utf-8")
    undisturbed = finish(pipeline(tmp_path, "undisturbed"))
    path = pipeline(tmp_path, "killed")
    for number, point in enumerate(islice(cycle(FAILPOINTS), KILLS)):
        passes = 1 + number % 2
        with ForkedConsumer(
            path, "--quiet", folder=tmp_path, failpoint=point, passes=passes
        ) as consumer:
            assert consumer.wait_or_fail(120) == -9, f"{number}: {point}\n{consumer.log()[-3000:]}"
            assert "no snapshot" not in consumer.log()
    assert finish(path) == undisturbed
