"""What strangers wrote and operators look at: an error is a line, and a terminal is never told anything."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamforest.cli import dlq as dlq_command
from streamforest.cli import root
from streamforest.errors import BrokerError, ConfigError, RecoveryError
from streamforest.io.codec import dead_letters
from streamforest.io.codec.dead_letters import read_letter
from streamforest.io.codec.events import Bounds
from streamforest.io.kafka.reader import commit_number
from streamforest.io.sources import delimited
from streamforest.io.sources import parquet as parquet_source
from streamforest.io.sources.opening import open_file
from streamforest.io.tools import dlq
from streamforest.io.tools.replay import ReplayOptions, messages
from streamforest.testing.broker.server import Broker, has_port

BELL, CSI = (
    "\x07",
    "\x9b31m",
)  # click takes escape sequences out by itself where there is no terminal


def harmless(done: Result) -> None:
    """Text alone, no traceback, and nothing that we would call a bug."""
    for text in (done.stdout, done.stderr):
        assert all(c == "\n" or c.isprintable() for c in text), text
        assert "Traceback" not in text
        assert "internal error" not in text
    assert done.exception is None or isinstance(done.exception, SystemExit)


def on_a_file(tmp_path: Path, name: str, content: bytes) -> Path:
    (tmp_path / name).write_bytes(content)
    path = tmp_path / "p.toml"
    path.write_text(
        f'[pipeline]\nname = "p"\n[source]\nfile = "{tmp_path / name}"\n'
        f'[model]\nn_trees = 1\n[run]\nfolder = "{tmp_path / "run"}"\n'
    )
    return path


FILES = {
    # name: content, exit code of a run, what is told, predictions and dead letters
    "nul.csv": (b"a,y\n1,\0\n\0,2\n", 0, "", (2, 0)),
    "bytes.csv": (bytes(range(256)) * 50, 2, "no such column", None),
    "utf16.csv": ("a,y\n1,2\n".encode("utf-16"), 0, "", (1, 0)),
    "macintosh.csv": (b"a,y\r1,2\r3,4\r", 0, "", (2, 0)),
    "open quote.csv": (b'a,y\n"' + b"x\n" * 100_000, 2, "field larger than field limit", None),
    "line.csv": (
        b"a,y\n" + b"1," * 2_200_000,
        2,
        "line 2 is not a row of a table: it is longer",
        None,
    ),
    "row.csv": (b"a,y\n" + b'"1\n",' * 900_000, 2, "is not a row of a table: it is longer", None),
    "header.csv": (b"a," * 2_200_000, 2, "line 1 is not a row of a table: it is longer", None),
    "terminal.csv": (f"a,{CSI}\n1,{BELL}\n".encode(), 2, r"it has a, \x9b31m", None),
    "brackets.jsonl": (
        b"[" * 100_000 + b'\n{"x":{"a":' + b"[" * 100_000,
        1,
        "2 of 2 events",
        (0, 2),
    ),
    "line.jsonl": (b'{"x": {"a": 1}, "y": "' + b"x" * 5_000_000, 1, "1 of 1 events", (0, 1)),
    "nul.jsonl": (b"\0" * 3_000_000, 1, "1 of 1 events", (0, 1)),
    "bytes.jsonl": (bytes(range(256)) * 3, 1, "4 of 4 events", (0, 4)),
    "bytes.parquet": (bytes(range(256)) * 50, 2, "not a Parquet file", None),
    "footer.parquet": (b"PAR1" + b"\x15" * 5_000 + b"\xff\xff\xff\x7fPAR1", 2, "not a Parq", None),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_any_kind_runs_or_is_refused_in_a_line(tmp_path: Path, name: str) -> None:
    content, code, told, expected = FILES[name]
    path = on_a_file(tmp_path, name, content)
    done = CliRunner().invoke(root, ["run", str(path), "-q"])
    harmless(done)
    assert done.exit_code == code, done.output
    assert told in done.stderr
    assert code != 2 or done.stderr.count("\n") == 1
    if expected is not None:
        written = [tmp_path / "run" / f"{out}.jsonl" for out in ("predictions", "dead_letters")]
        assert tuple(len(out.read_bytes().splitlines()) for out in written) == expected
    checked = CliRunner().invoke(root, ["check", str(path)])
    harmless(checked)
    nothing_left = expected is not None and expected[0] == 0 and expected[1] > 0
    assert checked.exit_code == (2 if code == 2 else int(nothing_left))


@pytest.mark.parametrize("content", [b"x" * 20_000_000, b'"x\n",' * 4_000_000], ids=["line", "row"])
def test_a_row_without_an_end_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    assert delimited._MAX_ROW == 4 << 20
    monkeypatch.setattr(delimited, "_MAX_ROW", 1 << 16)
    (tmp_path / "e.csv").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="is not a row of a table: it is longer than 65,536"):
            open_file(tmp_path / "e.csv", bounds=Bounds(max_bytes=100))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8_000_000


def test_values_that_python_has_not_are_dead_letters(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    no_text = pa.Array.from_buffers(
        pa.string(),
        3,
        [None, pa.array([0, 2, 4, 6], pa.int32()).buffers()[1], pa.py_buffer(b"ab\xff\xfecd")],
    )
    cases = {
        "text": (pa.table({"a": no_text, "y": [1, 2, 3]}), [1]),
        "year": (pa.table({"a": pa.array([1, 2**60], pa.timestamp("us")), "y": [1, 2]}), [1]),
        "zone": (pa.table({"a": pa.array([1], pa.timestamp("us", "No/Where")), "y": [1]}), [0]),
        "nanoseconds": (pa.table({"a": pa.array([1], pa.timestamp("ns")), "y": [1]}), []),
    }
    for name, (table, bad) in cases.items():
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(table, path)
        source = open_file(path)
        found = [row.offset for row in source.rows(0) if row.problem is not None]
        assert found == bad, name
        assert len(list(messages(source, ReplayOptions("t")))) == len(table)
    pipeline = on_a_file(tmp_path, path.name, path.read_bytes())
    done = CliRunner().invoke(root, ["run", str(pipeline), "--allow-unlearned"])
    harmless(done)
    assert done.exit_code == 0, done.output


def test_large_rows_are_held_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet_source, "_MAX_HELD", 1_000_000)
    table = pa.table({"a": ["x" * 10_000] * 1_000, "y": [1] * 1_000})
    parquet.write_table(table, tmp_path / "e.parquet", use_dictionary=False)
    source = open_file(tmp_path / "e.parquet")
    assert isinstance(source, parquet_source.ParquetSource)
    sizes = [len(batch) for batch in source._batches()]
    assert sum(sizes) == 1_000
    assert 50 < max(sizes) <= 100


DEEP = "a" + ".a" * 300


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"[model]\nlam.{DEEP} = 1\n", "is nested deeper than 50 levels"),
        (f"[[shadow]]\nname.{DEEP} = 1\n", "is nested deeper than 50 levels"),
        ("[model]\nlam = " + "[" * 100_000 + "\n", "not valid TOML"),
        ("[model]\nlam = " + "[" * 200 + "]" * 200 + "\n", "is nested deeper than 50 levels"),
        (
            "[model]\nseed = 0x" + "f" * 20_000 + "\n",
            "model.seed: a whole number of over 1024 bits",
        ),
        (
            "[run]\nbatch_size = 0x" + "f" * 20_000 + "\n",
            "run.batch_size: a whole number of over 1024 bits",
        ),
        ('[run]\nfolder = "\\u0007\\u009b31m"\n', "no mistakes found"),
        ('[metrics]\nhost = "\\u0007"\nport = 1\n', "no mistakes found"),
        ('[model]\nkind = "\\u0007"\n', r"model.kind = '\x07'"),
        ('["\\u0007"]\n', r"\x07: unknown table"),
        ('[model]\nfactory = "\\u0007:f"\n', r"No module named '\x07'"),
    ],
)
def test_a_pipeline_file_of_a_strangers_is_checked_in_lines(
    tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        '[pipeline]\nname = "p"\n[source]\ndataset = "bananas"\nmax_events = 5\n' + text, "utf-8"
    )
    done = CliRunner().invoke(root, ["check", str(path)])
    harmless(done)
    assert told in done.output


def forged(value: bytes | None = b"v", **said: bytes | None) -> Any:
    """A record of a dead-letter topic; anybody may have written it."""
    names = {name: getattr(dead_letters, name.upper()) for name in said}
    headers = {dead_letters.TOPIC: b"t", dead_letters.PARTITION: b"0", dead_letters.OFFSET: b"0"}
    headers |= {names[name]: text for name, text in said.items()}
    return SimpleNamespace(headers=list(headers.items()), key=None, value=value, offset=0)


@pytest.mark.parametrize(
    "said",
    [
        {"topic": None},
        {"topic": b"\xff"},
        {"partition": None},
        {"partition": b"one"},
        {"offset": None},
        {"offset": b"9" * 5_000},
        {"offset": b"1e3"},
        {"reason": b"\xff"},
        {"message": None},
        {"truncated": None},
        {"truncated": b"much"},
    ],
    ids=str,
)
def test_a_forged_letter_is_none(said: dict[str, bytes | None]) -> None:
    assert read_letter(forged()) is not None
    assert read_letter(forged(**said)) is None


def test_letters_are_listed_in_short_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[pipeline]\nname = "p"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    letter = read_letter(
        forged(topic=f"{BELL}t".encode(), offset=b"9" * 4_000, message=CSI.encode() * 9_999)
    )
    assert letter is not None
    found = [replace(letter, reason=f"{i}{CSI}" * 5_000) for i in range(100)]
    monkeypatch.setattr(dlq_command, "letters", lambda *asked: iter(found))
    done = CliRunner().invoke(root, ["dlq", "list", str(path)])
    harmless(done)
    *lines, counts = done.stdout.splitlines()
    assert len(lines) == 100
    assert max(map(len, lines)) < 3_000
    assert len(counts) < 50 * 500
    told = CliRunner().invoke(root, ["dlq", "list", str(path), "--json"])
    harmless(told)
    assert [json.loads(line)["reason"] for line in told.stdout.splitlines()] == [
        letter.reason for letter in found
    ]


def test_letters_are_sent_back_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> Iterator[Any]:
        while True:
            yield forged(b"x" * 900_000)

    first = next(dlq._batches(endless()))
    assert sum(len(record.value) for record in first) < 20_000_000
    many = list(dlq._batches(iter([forged()] * 2_500)))
    assert [len(batch) for batch in many] == [1_000, 1_000, 500]
    cut = list(dlq._batches(iter([forged(), forged(truncated=b"5"), forged()])))
    assert [len(batch) for batch in cut] == [2, 1]
    assert list(dlq._batches(iter([]))) == []


@pytest.mark.parametrize(
    "said",
    ["[" * 4_000, '{"a": 1e999}', '{"a": "x"}', "[1]", "7", "\x07", '{"a": {}}', '{"a":' * 800],
)
def test_what_a_stranger_commits_is_told(said: str) -> None:
    with pytest.raises(BrokerError, match="which this version cannot read") as caught:
        dlq._Done.read(SimpleNamespace(metadata=said, offset=3))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200
    with pytest.raises(RecoveryError, match="which no pipeline wrote"):
        commit_number(said.replace('"a"', '"commit"'))


@pytest.mark.parametrize(
    "state",
    [
        "[" * 100_000,
        "[1]",
        '{"pid": "\\u0007", "port": "x"}',
        '{"pid": 1e999}',
        '{"port": -1}',
        "\0",
    ],
)
def test_a_brokers_own_file_that_says_nothing_sensible_says_nothing(
    tmp_path: Path, state: str
) -> None:
    (tmp_path / "broker.json").write_text(state)
    assert not has_port(tmp_path)
    assert Broker(tmp_path).port > 0
    done = CliRunner().invoke(root, ["broker", "status", "--folder", str(tmp_path)])
    harmless(done)
    assert done.exit_code == 1


def test_a_number_that_is_no_snapshot_is_told(tmp_path: Path) -> None:
    path = on_a_file(tmp_path, "e.csv", b"a,y\n1,2\n")
    assert CliRunner().invoke(root, ["run", str(path), "-q"]).exit_code == 0
    done = CliRunner().invoke(root, ["snapshots", "pin", str(path), "9" * 5_000])
    harmless(done)
    assert "no such snapshot" in done.stderr
