"""A run on a recorded file, killed again and again: not a byte differs from one that never was.

The whole of it, with its tally: python -m pytest -m slow tests/integration/test_kill_file.py -s
"""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.feed import events
from integration.kills import FACTORY, FOREST, LEVELS, RIVER
from integration.late_feed import level_messages

from streamforest.forests.persistence import snapshot
from streamforest.testing import FAILPOINTS
from streamforest.testing.forked import ForkedConsumer

PIPELINE = """
[pipeline]
name = "recorded"
[source]
file = "{file}"
{model}
[run]
batch_size = 100
commit_interval_events = 300
snapshot_interval_events = 600
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
        consumer.expect_exit(0, 600)
    folder = path.with_suffix("")
    (*_, last) = sorted((folder / "snapshots").glob("*.safetensors"))
    assert not list((folder / "snapshots").glob("*.part"))
    return {file.name: file.read_bytes() for file in (*(folder / name for name in FILES), last)}


def check(
    folder: Path,
    model: str,
    n: int,
    per_failpoint: int,
    random_kills: int,
    lines: Callable[[int], list[bytes]] | None = None,
) -> None:
    (folder / "integration_factory.py").write_text(FACTORY, encoding="utf-8")
    (folder / "events.jsonl").write_bytes(b"\n".join((lines or _lines)(n)) + b"\n")
    begun = time.monotonic()
    undisturbed = finish(pipeline(folder, "undisturbed", model))
    runs = [pipeline(folder, "killed-0", model)]
    ways = [name for name in FAILPOINTS for _ in range(per_failpoint)] + ["random"] * random_kills
    draw = random.Random(3)
    draw.shuffle(ways)
    for way in ways:
        # on a fast machine the recording may end before its time: the next one begins, and as every
        # point is passed twice in a whole run, the second life on it dies for certain
        if not dies(runs[-1], way, draw):
            assert finish(runs[-1]) == undisturbed
            runs.append(pipeline(folder, f"killed-{len(runs)}", model))
            assert dies(runs[-1], way, draw), f"{way}: not passed twice in {n:,} events"
    reached = committed(runs[-1])
    assert finish(runs[-1]) == undisturbed
    told = ", ".join(f"{way} {count}" for way, count in sorted(Counter(ways).items()))
    print(
        f"\n{n:,} events {len(runs)} times, {len(ways)} deaths (the last near event {reached:,}) in "
        f"{time.monotonic() - begun:.0f} s: {told}; every byte that of an undisturbed run"
    )


def dies(path: Path, way: str, draw: random.Random) -> bool:
    """Whether a life ends as it should; False if it came to the end of the recording first."""
    folder = path.parent
    if way == "random":
        enough = committed(path) + draw.randrange(1, 1_500)
        with ForkedConsumer(path, "--quiet", folder=folder) as consumer:
            if draw.random() < 0.8:  # at work, else anywhere in its start
                consumer.until(lambda c: c.gone() or committed(path) >= enough, timeout=300)
            time.sleep(draw.uniform(0.0, 0.05))
            code = consumer.kill()
    else:
        passes = draw.randrange(1, 3)
        with ForkedConsumer(
            path, "--quiet", folder=folder, failpoint=way, passes=passes
        ) as consumer:
            code = consumer.wait_or_fail(300)
    assert code in (-9, 0), f"{way}: ended with {code}"
    return code == -9


def committed(path: Path) -> int:
    """The event that a run has committed up to."""
    try:
        told = (path.with_suffix("") / "commit.json").read_bytes()
        return int(json.loads(told)["position"])
    except FileNotFoundError:
        return -1


def _lines(n: int) -> list[bytes]:
    return [event.replace(b"\n", b" ") for event in events(n)]


@pytest.mark.parametrize("model", [FOREST, RIVER], ids=["forest", "river"])
def test_killed_on_a_file(tmp_path: Path, model: str) -> None:
    check(tmp_path, model, 6_000, per_failpoint=1 if model == FOREST else 0, random_kills=3)


def _flat(n: int) -> list[bytes]:
    """The same events as flat records, with a date and a text in each."""
    start, found = dt.datetime(2026, 1, 1), []
    for i, line in enumerate(_lines(n)):
        try:
            event = json.loads(line)
            flat = {**event["x"], "label": event["y"], "id": i}
        except (ValueError, KeyError, TypeError):
            found.append(line)
            continue
        flat["when"] = (start + dt.timedelta(seconds=31 * i)).isoformat()
        flat["note"] = f"parcel {i % 7} came {'late' if i % 3 else 'early'} today"
        found.append(json.dumps(flat).encode())
    return found


def test_killed_on_flat_records(tmp_path: Path) -> None:
    """Layout, types and the first dates are part of the state that recovery comes back to."""
    model = f'{FOREST}\n[features]\nlabel = "label"\n'
    check(tmp_path, model, 3_000, per_failpoint=0, random_kills=3, lines=_flat)


def _levels(n: int) -> list[bytes]:
    """Events with both labels, only a category, or none; late labels need a broker."""
    return [message.value for message in level_messages(n) if not message.label]


def test_killed_with_coarse_labels(tmp_path: Path) -> None:
    """What is withheld or estimated is part of the state too."""
    check(tmp_path, LEVELS, 1_500, per_failpoint=0, random_kills=3, lines=_levels)
    for name in ("main", "other"):
        told = levels_of(tmp_path / "undisturbed", name)
        assert told["coarse_rows"] > 150
        assert told["refinable_rows"] > 0


def levels_of(folder: Path, model: str) -> dict[str, int]:
    """What a run's last snapshot has counted of coarse labels."""
    (*_, last) = sorted((folder / "snapshots").glob("*.safetensors"))
    counts: dict[str, int] = snapshot.read(last)[0][model].summary()["levels"]
    return counts


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_kill_test_with_coarse_labels(tmp_path: Path) -> None:
    check(tmp_path, LEVELS, 8_000, per_failpoint=1, random_kills=10, lines=_levels)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", [FOREST, RIVER], ids=["forest", "river"])
def test_the_whole_kill_test_on_a_file(tmp_path: Path, model: str) -> None:
    check(tmp_path, model, 60_000, per_failpoint=2, random_kills=30)
