"""A hostile producer on a real broker, with the default limits: nothing is lost, memory has a bound.

Each attack against every forest with a shadow beside it, with the table of what it took:

    python -m pytest -m slow tests/integration/test_hostile.py -s
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from integration.feed import events, send
from integration.oracle import read_output
from integration.test_fuzz import count_reasons, places

from streamforest.io.kafka.topics import Topics, ensure_topics
from streamforest.testing.broker.server import Broker

MEMORY = 2 << 30
REFUSED, ACCEPTED = 0.2, 2.0
"""Seconds that an event may take: of the processor for each, on the clock for half of them, since other
processes may have the machine at times."""
KINDS = ("stream", "consistent", "online", "ncm")
PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
bootstrap_servers = "{servers}"
[events]
format = "{form}"
[run]
batch_size = {batch}
folder = "{folder}"
[model]
kind = "{kind}"
"""
Seconds = dict[str, dict[bool, list[tuple[float, float]]]]
"""By attack, of events that were refused and of others: on the clock, and of the processor."""
SHADOW = '[[shadow]]\nname = "{kind}-beside"\nkind = "{kind}"\n'


def _json(x: Any, y: Any = "hostile", **more: Any) -> bytes:
    return json.dumps({"x": x, "y": y, **more}, separators=(",", ":")).encode()


def _field(of: bytes) -> bytes:
    """An event, and a field that nobody asked for."""
    return b'{"x":{"f0":1.0},"y":"hostile","more":' + of + b"}"


def attacks(n: int) -> Iterator[tuple[str, bytes]]:
    """`n` messages of each attack in JSON; those that fill the tables last, ordinary events between."""

    def ordinary(name: str, seed: int) -> Iterator[tuple[str, bytes]]:
        for value in events(5 * n, bad=0.0, seed=seed, strings=False):
            yield name, value

    yield from ordinary("ordinary", 1)
    for i in range(n):
        yield "deep", _field(b"[" * 500_000 + b"]" * 499_000)
        yield "empty arrays", _field(b"[" + b"[]," * 330_000 + b"[]]")
        yield "as many items as allowed", _field(b"[" + b"{}," * 131_000 + b"[]]")
        yield "quotes", _field(b"[" * 40 + b'"' * 1_000_000)
        yield "one name many times", b'{"x":{' + b'"f0":1,' * 140_000 + b'"f0":1},"y":"hostile"}'
        yield "vector of 500,000", b'{"x":[' + b"1," * 500_000 + b'1],"y":"hostile"}'
        yield "vector of 130,000", b'{"x":[' + b"1," * 130_000 + b'1],"y":"hostile"}'
        yield "65,000 names", _json({f"{i}{j:x}": 1 for j in range(65_000)})
        yield "1e400", b'{"x":{"f0":1e400},"y":"hostile"}'
        yield "a million digits", b'{"x":{"f0":' + b"9" * 1_000_000 + b'},"y":"hostile"}'
        yield "an id of digits", b'{"x":{"f0":1},"id":' + b"9" * 1_000_000 + b"}"
        yield "a label of digits", b'{"x":{"f0":1},"y":' + b"9" * 5_000 + b"}"
        yield "a long text", _json({"f0": 1.0, "c": "c" * 1_000_000})
        yield "a long name", _json({"n" * 1_000_000: 1.0})
        yield "surrogates", b'{"x":{"f0":1.0,"c":"' + b"\\ud800" * 100 + b'"},"y":"hostile"}'
        yield "largest numbers", _json({f"f{j}": 1.7e308 * (-1) ** j for j in range(10)})
        yield "numbers near 0", _json({f"f{j}": 5e-324 for j in range(10)})
        yield "a late failure", _json({f"late {j}": 1.0 for j in range(9_000)} | {"f0": 1e300})
    for i in range(n):
        yield "8,000 features", _json({f"w{j}": float(i + j) for j in range(8_000)})
    yield from ordinary("ordinary, 8,000 columns", 2)
    for i in range(n):
        text = "\\u0001" * 250
        yield "a new label", _json({f"f{j}": 1.0 for j in range(10)}, f"label {i}" + "l" * 240)
        yield "400 categories", _json({f"c{j}": f"{i} {j} " + "ü" * 240 for j in range(400)})
        yield (
            "400 of control",
            b'{"x":{%s},"y":"hostile"}'
            % b",".join(b'"k%d":"%d%s"' % (j, i, text.encode()) for j in range(400)),
        )
        yield "20 new features", _json({f"new {i} {j}": 1.0 for j in range(20)})
        yield "a new long name", _json({f"{i} " + "n" * 250: 1.0})
    for i in range(n):
        yield "8,000 others", _json({f"w{i} {j}": 1.0 for j in range(8_000)})
    yield from ordinary("ordinary, tables full", 3)


def packed(n: int) -> Iterator[tuple[str, bytes]]:
    """What MessagePack has of its own."""
    start = msgspec.msgpack.encode({"x": {"f0": 1.0}, "y": "hostile", "more": None})[:-1]

    def array(size: int) -> bytes:
        return b"\xdd" + size.to_bytes(4)

    for i in range(n):
        yield "ordinary", msgspec.msgpack.encode({"x": {"f0": float(i)}, "y": i % 3})
        yield "empty arrays", start + array(1_000_000) + b"\x90" * 1_000_000
        yield "empty maps", start + array(1_000_000) + b"\x80" * 1_000_000
        yield "deep", start + b"\x91" * 1_000_000
        yield "arrays that lie", start + array(2**32 - 1) * 200_000
        yield "texts", start + array(130_000) + b"\xda\x00\x00" * 130_000
        yield "maps", start + b"\xdf" + (65_000).to_bytes(4) + b"\xda\x00\x00" * 130_000
        yield "raw vector", b"\x81\xa1x\xc6" + (1_000_000).to_bytes(4) + bytes(1_000_000)
        yield "names of no text", b"\xdf" + (60_000).to_bytes(4) + b"\xa1\xff\x01" * 60_000
        yield "ids", msgspec.msgpack.encode({"x": {"f0": 1.0}, "id": 2**64 - 1})
        yield "NaN", msgspec.msgpack.encode({"x": {"f0": float("nan")}, "ts": float("inf")})


def attack(
    broker: Broker,
    folder: Path,
    messages: list[tuple[str, bytes]],
    kinds: list[str],
    form: str = "json",
    batch: int = 1,
) -> Seconds:
    """Seconds by attack, of events that were refused and of others; all is accounted for by then."""
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    topic = f"{name}.events"
    ensure_topics(broker.servers, Topics.of(name), create=True, partitions=1)
    send(broker.servers, topic, (value for _, value in messages), 1)
    main, *shadows = kinds
    told = {"name": name, "servers": broker.servers, "folder": folder / "run"}
    text = PIPELINE.format(kind=main, form=form, batch=batch, **told)
    path = folder / f"{name}.toml"
    path.write_text(text + "".join(SHADOW.format(kind=kind) for kind in shadows))
    script = Path(__file__).parent / "timed_consumer.py"
    done = subprocess.run(
        [sys.executable, str(script), str(path), str(folder / "told.json")],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = json.loads((folder / "told.json").read_text())
    output = read_output(broker.servers, name)
    answered = output.predictions.keys() | output.dead.keys()
    assert not output.predictions.keys() & output.dead.keys()
    assert answered == places(broker.servers, topic)
    assert len(answered) == len(messages)
    reasons = count_reasons(output.dead)
    print(f"\n{main} with {', '.join(shadows)}: {found['memory'] / 2**20:,.0f} MB, {reasons}")
    seconds: Seconds = {}
    for first, _, refused, took, busy in found["times"]:
        of_it = seconds.setdefault(messages[first][0], {True: [], False: []})
        of_it[bool(refused)].append((took, busy))
    if batch == 1:
        show(seconds)
        assert sum(len(of_it[True]) for of_it in seconds.values()) == len(output.dead)
    assert found["memory"] < MEMORY
    assert all(one["label"] is not None for one in output.predictions.values() if one["learned"])
    return seconds


def show(seconds: Seconds) -> None:
    print(
        f"{'attack':26}" + "".join(f"{w:>9} median    max of cpu ms" for w in ("refused", "taken"))
    )
    for name, of_it in seconds.items():
        line = f"{name:26}"
        for refused in (True, False):
            took = [1000 * one for one, _ in of_it[refused]] or [0.0]
            busy = [1000 * one for _, one in of_it[refused]] or [0.0]
            line += f"{len(of_it[refused]):9}{statistics.median(took):7,.1f}"
            line += f"{max(took):7,.1f}{max(busy):10,.1f}"
        print(line)


def most(seconds: Seconds, refused: bool) -> tuple[float, str]:
    """The most processor time that such an event took, and in which attack; the clock has no more
    than that to say of most of them.
    """
    told = []
    for name, of_it in seconds.items():
        if of_it[refused]:
            half = statistics.median(took for took, _ in of_it[refused])
            told.append((max(half, *(busy for _, busy in of_it[refused])), name))
    return max(told)


def test_a_hostile_producer_stops_no_forest(kafka_broker: Broker, tmp_path: Path) -> None:
    """All forests side by side, a few messages of each attack."""
    seconds = attack(kafka_broker, tmp_path, list(attacks(2)), list(KINDS))
    # generous, for machines that have other things to do; quadratic ways take longer
    assert most(seconds, refused=True) < (3.0,)
    assert most(seconds, refused=False) < (30.0,)
    # features for which there is no room are left out: the event is learned all the same
    taken = "8,000 features", "8,000 others", "65,000 names", "400 categories", "a new label"
    for name in (*taken, "ordinary, tables full"):
        assert not seconds[name][True], name
    for name in ("a late failure", "an id of digits"):
        assert not seconds[name][False], name


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_attack_on_every_forest_in_time(
    kafka_broker: Broker, tmp_path: Path, kind: str
) -> None:
    beside = KINDS[(KINDS.index(kind) + 1) % len(KINDS)]
    for form, messages in (("json", list(attacks(30))), ("msgpack", list(packed(20)))):
        folder = tmp_path / form
        folder.mkdir()
        seconds = attack(kafka_broker, folder, messages, [kind, beside], form)
        assert most(seconds, refused=True) <= (REFUSED,)
        assert most(seconds, refused=False) <= (ACCEPTED,)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_attack_in_batches_of_the_default(
    kafka_broker: Broker, tmp_path: Path, kind: str
) -> None:
    beside = KINDS[(KINDS.index(kind) + 1) % len(KINDS)]
    attack(kafka_broker, tmp_path, list(attacks(30)), [kind, beside], batch=500)
