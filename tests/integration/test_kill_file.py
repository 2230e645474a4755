"""A run on a recorded file, killed again and again: not a byte differs from one that never was.

The whole of it, with its tally: python -m pytest -m slow tests/integration/test_kill_file.py -s
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from integration.feed import events
from integration.kills import FACTORY, FOREST, RIVER

from streamforest.testing import FAILPOINTS
from streamforest.testing.forked import ForkedConsumer

PIPELINE = """
[pipeline]
name = "recorded"
[source]
file = "{file}"
{model}
[run]
batch = 100
commit_events = 300
snapshot_every = 600
folder = "{folder}"
"""
FILES = ("predictions.jsonl", "dead_letters.jsonl", "journal.jsonl")


def pipeline(folder: Path, name: str, model: str) -> Path:
    """A pipeline file on the same recording, with a run folder of its own."""
    path = folder / f"{name}.toml"
    text = PIPELINE.format(file=folder / "events.jsonl", model=model, folder=folder / name)
    path.write_text(text, encoding="utf-8")
    return path


def finish(path: Path) -> dict[str, bytes]:
    """Let the run come to its end; what it leaves behind."""
    with ForkedConsumer(path, "--quiet", folder=path.parent) as consumer:
        assert consumer.wait_or_tell(600) == 0, consumer.log()[-3000:]
    folder = path.with_suffix("")
    (*_, last) = sorted((folder / "snapshots").glob("*.safetensors"))
    assert not list((folder / "snapshots").glob("*.part"))
    return {file.name: file.read_bytes() for file in (*(folder / name for name in FILES), last)}


def check(folder: Path, model: str, n: int, per_failpoint: int, random_kills: int) -> None:
    (folder / "integration_factory.py").write_text(FACTORY, encoding="utf-8")
    (folder / "events.jsonl").write_bytes(b"\n".join(_lines(n)) + b"\n")
    begun = time.monotonic()
    undisturbed = finish(pipeline(folder, "undisturbed", model))
    path = pipeline(folder, "killed", model)
    ways = [name for name in FAILPOINTS for _ in range(per_failpoint)] + ["random"] * random_kills
    draw = random.Random(3)
    draw.shuffle(ways)
    deaths: Counter[str] = Counter()
    for way in ways:
        if way == "random":
            before = committed(folder)
            with ForkedConsumer(path, "--quiet", folder=folder) as consumer:
                if draw.random() < 0.8:  # at work, else anywhere in its start
                    consumer.until(lambda c, seen=before: committed(folder) > seen, timeout=300)
                time.sleep(draw.uniform(0.0, 0.3))
                assert consumer.kill() == -9, "the recording is too short"
                deaths[way] += 1
        else:
            passes = draw.randrange(1, 3)
            with ForkedConsumer(
                path, "--quiet", folder=folder, failpoint=way, passes=passes
            ) as consumer:
                code = consumer.wait_or_tell(300)
                assert code == -9, f"{way}: {code}, the recording is too short\n{consumer.log()}"
                deaths[way] += 1
    reached = committed(folder)
    assert finish(path) == undisturbed
    told = ", ".join(f"{way} {count}" for way, count in sorted(deaths.items()))
    print(
        f"\n{n:,} events, {sum(deaths.values())} deaths (the last near event {reached:,}) in "
        f"{time.monotonic() - begun:.0f} s: {told}; every byte that of an undisturbed run"
    )


def committed(folder: Path) -> int:
    """The event that the killed run has committed up to."""
    try:
        return int(json.loads((folder / "killed" / "commit.json").read_bytes())["position"])
    except FileNotFoundError:
        return -1


def _lines(n: int) -> list[bytes]:
    return [event.replace(b"\n", b" ") for event in events(n)]


@pytest.mark.parametrize("model", [FOREST, RIVER], ids=["forest", "river"])
def test_killed_on_a_file(tmp_path: Path, model: str) -> None:
    check(tmp_path, model, 12_000, per_failpoint=1 if model == FOREST else 0, random_kills=3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", [FOREST, RIVER], ids=["forest", "river"])
def test_the_whole_kill_test_on_a_file(tmp_path: Path, model: str) -> None:
    check(tmp_path, model, 60_000, per_failpoint=2, random_kills=30)
