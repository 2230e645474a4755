"""Typical mistakes: each gets one line that says what is wrong and what to do, and the right exit code.

2: the command line, a file or a setting must be changed first. 1: the run or the broker failed. Never a
traceback.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from streamforest.cli import root
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.server import MetricsServer
from streamforest.testing.broker.server import Broker

HEAD = '[pipeline]\nname = "p"\n'
SET = HEAD + '[source]\ndataset = "bananas"\nmax_events = 40\n'
# no port for metrics: the usual one may be another program's
KAFKA = HEAD + '[metrics]\nport = 0\n[kafka]\nbootstrap_servers = "{servers}"\n'
AWAY = KAFKA.format(servers="127.0.0.1:9")
CSV = HEAD + '[source]\nfile = "e.csv"\n'
LINES = HEAD + '[source]\nfile = "e.jsonl"\n'
ROWS = "a,b,y\n" + "1,2,u\n3,4,v\n" * 5


class Mistake(NamedTuple):
    """A command line, the files beside it, and what is told."""

    name: str
    command: str
    code: int
    wrong: str
    remedy: str
    toml: str | None = None
    files: dict[str, str | bytes] = {}  # noqa: RUF012


def usage(name: str, command: str, wrong: str, remedy: str, toml: str = SET) -> Mistake:
    return Mistake(name, command, 2, wrong, remedy, toml)


def setting(name: str, toml: str, wrong: str, remedy: str) -> Mistake:
    return Mistake(name, "check p.toml", 2, wrong, remedy, toml)


def data(name: str, code: int, toml: str, wrong: str, remedy: str, **files: str | bytes) -> Mistake:
    named = {file.replace("_", "."): content for file, content in files.items()}
    return Mistake(name, "run p.toml -q", code, wrong, remedy, toml, named)


COMMAND_LINE = [
    usage("to serve a file run", "serve p.toml", "has no [kafka]", "streamforest serve runs/p"),
    usage("to serve nothing", "serve no.safetensors --port 0", "no such file", "give a snapshot"),
    usage(
        "a server for everybody",
        "serve no.safetensors --host 0.0.0.0",
        "serve.host = '0.0.0.0'",
        "give a token",
    ),
    usage("a port that is none", "serve no.safetensors --port 99999", "--port", "0<=x<=65535"),
    usage("a misspelt command", "rnu p.toml", "No such command 'rnu'", "did you mean run?"),
    usage("a misspelt subcommand", "dlq lst p.toml", "No such command 'lst'", "did you mean list?"),
    usage("a misspelt option", "run p.toml --fersh", "--fersh", "--fresh"),
    usage("an option of another command", "check p.toml --drain", "--drain", "check --help"),
    usage("no pipeline file", "run", "Missing argument 'PIPELINE'", "streamforest run pipelines/"),
    usage("one argument too many", "run p.toml q.toml", "q.toml", "run --help"),
    usage("a word that is no choice", "demo --source brokr", "'brokr'", "did you mean broker?"),
    usage("text for a number", "demo --rate fast", "'fast' is no whole number", "demo --help"),
    usage("a number out of range", "run p.toml --max-events 0", "0 is not in the range", "x>=1"),
    usage("a flag with a value", "run p.toml --drain=yes", "--drain", "does not take a value"),
    usage("an option without its value", "run p.toml --set", "--set", "requires an argument"),
    usage("--set without =", "run p.toml --set model.n_trees", "--set", "table.key=value"),
    usage("--set without a table", "run p.toml --set n_trees=3", "'n_trees'", "table.key=value"),
    usage("--set without a key", "run p.toml --set model.=3", "'model.'", "table.key=value"),
    usage("--set of a misspelt key", "run p.toml --set model.n_tres=3", "model.n_tres", "n_trees?"),
    usage("--set below a value", "run p.toml --set pipeline.name.x=3", "pipeline.name", "remove"),
    usage("--every without --order", "replay digits --every 5", "--every", "add it"),
    usage("--labels-topic alone", "replay digits --labels-topic t", "--labels-topic", "add it"),
    usage(
        "a column of a data set", "replay digits --label-column a", "--label-column", "remove it"
    ),
    usage("a misspelt data set", "replay digts", "'digts' is not known", "did you mean digits?"),
    usage("no port", "replay digits --bootstrap-servers h", "'h'", "host:port"),
    usage("a web address", "run p.toml --broker http://h:9092", "--broker", "host:port"),
    usage("--fresh on Kafka", "run p.toml --fresh", "--fresh", "another name", AWAY),
    usage("a misspelt shadow", "promote p.toml mian", "mian: no such model", "did you mean main?"),
    usage(
        "whatif with nothing changed", "whatif p.toml 5 --set run.folder=x", "--set", "n_trees=50"
    ),
    usage("letters of a file sent back", "dlq replay p.toml", "no [kafka]", "run --fresh"),
    usage("a misspelt benchmark", "bench forst", "'forst'", "did you mean forest?"),
    usage("a misspelt stream", "bench forest --stream digts", "'digts'", "did you mean digits?"),
]
FILES = [
    Mistake("no such file", "run q.toml", 2, "q.toml: no such file", "give the path"),
    Mistake("a folder for a file", "run .", 2, "cannot be read", "give the path"),
    setting("not TOML", "[pipeline\n", "not valid TOML", "line 1"),
    Mistake(
        "UTF-16",
        "check p.toml",
        2,
        "not UTF-8",
        "save it as",
        None,
        {"p.toml": HEAD.encode("utf-16")},
    ),
    setting("a huge file", "#" * 2_000_000, "larger than 1 MB", "short TOML text"),
    setting("a script", "import os\nprint(1)\n", "not valid TOML", "line 1"),
    data("no events file", 2, CSV, "e.csv': no such file", "correct the path"),
    setting("an unknown kind of file", HEAD + '[source]\nfile = "e.xlsx"\n', "e.xlsx", ".csv"),
    data("an empty CSV", 2, CSV, "e.csv': is empty", "names of the columns", e_csv=""),
    data("a CSV without the label", 2, CSV, "no such column", "features.label", e_csv="a,b\n1,2\n"),
    data("a CSV of a header only", 2, CSV, "a header and no rows", "add some", e_csv="a,y\n"),
    data("two columns of one name", 2, CSV, "column is called a", "rename", e_csv="a,a,y\n1,2,3\n"),
    data("a CSV that is no UTF-8", 1, CSV, "1 of 1 events", "dlq list", e_csv=b"a,y\n\xe4\xf6,1\n"),
    data("an unclosed quote", 2, CSV, "field limit", "quote", e_csv='a,y\n"' + "x\n" * 100_000),
    data("no JSON lines", 2, LINES, "e.jsonl': is empty", "one event to a line", e_jsonl=""),
    data(
        "no Parquet",
        2,
        HEAD + '[source]\nfile = "e.parquet"\n',
        "source.file = 'e.parquet'",
        "not a Parquet file",
        e_parquet=b"PK\3\4" * 50,
    ),
    setting("a folder of events", HEAD + '[source]\nfile = "."\n', "source.file", ".csv"),
    setting(
        "a set whose file is missing",
        HEAD + '[source]\ndataset = "letter"\n',
        "letter",
        "STREAMFOREST_DATA",
    ),
]
KEYS = [
    setting("an empty file", "", "pipeline.name: missing", "give a name"),
    setting("a misspelt table", SET + "[modle]\n", "modle: unknown table", "did you mean model?"),
    setting(
        "a misspelt key",
        SET + "[run]\nbatchsize = 5\n",
        "run.batchsize",
        "did you mean batch_size?",
    ),
    setting(
        "a key of another table", SET + "[model]\nbatch_size = 5\n", "model.batch_size", "[run]"
    ),
    setting(
        "no table at all",
        'name = "p"\n' + SET.replace(HEAD, ""),
        "name: unknown table",
        "it belongs to [pipeline]",
    ),
    setting("no source", HEAD, "source.dataset: missing", "kafka"),
    setting("two sources", SET + 'file = "e.csv"\n', "source.file", "remove one"),
    setting(
        "a parameter of another kind",
        SET + "[model]\nlam = 3\n",
        "model.lam",
        "kind = 'consistent'",
    ),
    setting("a value for a table", 'model = "stream"\n' + SET, "model = 'stream'", "[model]"),
    setting("one bracket for a shadow", SET + '[shadow]\nname = "s"\n', "shadow", "[[shadow]]"),
    setting(
        "two models of one name",
        SET + '[[shadow]]\nname = "main"\n',
        "shadow.0.name",
        "choose another",
    ),
    setting("a password", AWAY + 'password = "x"\n', "kafka.password", "password_env"),
    setting(
        "kind and factory",
        SET + '[model]\nkind = "ncm"\nfactory = "a:b"\n',
        "model.factory",
        "remove them",
    ),
]
VALUES = [
    setting("a name with a slash", SET.replace('"p"', '"a/b"'), "pipeline.name = 'a/b'", "letters"),
    setting("no trees", SET + "[model]\nn_trees = 0\n", "model.n_trees", "at least 1"),
    setting(
        "trees in words",
        SET + '[model]\nn_trees = "ten"\n',
        "model.n_trees = 'ten'",
        "whole number",
    ),
    setting(
        "too many trees", SET + "[model]\nn_trees = 99999999\n", "model.n_trees", "at most 10000"
    ),
    setting(
        "a misspelt kind", SET + '[model]\nkind = "streem"\n', "'streem'", "did you mean stream?"
    ),
    setting(
        "a class for a kind",
        SET + '[model]\nkind = "NCMForestClassifier"\n',
        "NCM",
        "did you mean ncm?",
    ),
    setting(
        "a misspelt word",
        AWAY + 'model_scope = "partitoin"\n',
        "'partitoin'",
        "did you mean partition?",
    ),
    setting("a word for another", AWAY + 'delivery = "twice"\n', "'twice'", "'exactly-once'"),
    setting(
        "a port beyond all", SET + "[metrics]\nport = 70000\n", "metrics.port = 70000", "65,535"
    ),
    setting(
        "true for a number", SET + "[run]\nbatch_size = true\n", "run.batch_size", "whole number"
    ),
    setting(
        "a number for true", SET + "[predictions]\nbatch_messages = 1\n", "= 1", "true or false"
    ),
    setting(
        "a module that is not there",
        SET + '[model]\nfactory = "none:f"\n',
        "none:f",
        "put none.py beside",
    ),
    setting(
        "a decoder without function",
        AWAY + '[events]\ndecoder = "m"\n',
        "events.decoder = 'm'",
        "module:function",
    ),
    setting(
        "one topic twice",
        AWAY + '[topics]\nevents = "t"\njournal = "t"\n',
        "topics.journal",
        "its own",
    ),
    setting(
        "a topic of spaces", AWAY + '[topics]\nevents = "my events"\n', "'my events'", "letters"
    ),
    setting(
        "a session too short",
        AWAY + "session_timeout_ms = 1\n",
        "kafka.session_timeout_ms = 1",
        "1,000",
    ),
    setting(
        "a type that is none",
        SET + '[features]\ntypes = { a = "int" }\n',
        "features.types",
        "'number'",
    ),
    setting(
        "a long separator",
        SET + '[features]\nseparator = ";;"\n',
        "separator = ';;'",
        "one character",
    ),
    setting(
        "an encoding that is none", SET + '[features]\nencoding = "utf9"\n', "'utf9'", "cp1252"
    ),
    setting(
        "hosts as a pattern",
        SET + '[metrics]\nallowed_hosts = ["*"]\n',
        "allowed_hosts",
        "['consumer']",
    ),
    setting("a mode that is open", SET + '[run]\nfile_mode = "0777"\n', "'0777'", "'0600'"),
    setting(
        "labels that are none", SET + '[source.schedule]\norder = ["cat"]\n', "['cat']", "labels"
    ),
    setting("no registry", AWAY + '[events]\nformat = "avro"\n', "events.registry", "missing"),
    setting("a broker without a port", KAFKA.format(servers="h"), "'h'", "host:port"),
    setting(
        "a login without a user",
        AWAY + 'security_protocol = "SASL_SSL"\n',
        "sasl_username",
        "missing",
    ),
    setting(
        "a forest for each partition, twice",
        AWAY + 'model_scope = "partition"\ndelivery = "at-least-once"\n',
        "kafka.model_scope",
        "exactly-once",
    ),
]
DATA = [
    data("rows that are no events", 1, LINES, "3 of 3 events", "dlq list", e_jsonl="a\nb\nc\n"),
    data(
        "no labels",
        1,
        LINES,
        "nothing was learned",
        "--allow-unlearned",
        e_jsonl='{"x": {"a": 1}}\n' * 5,
    ),
    data(
        "the first bad row ends it",
        1,
        LINES + '[dead_letters]\npolicy = "stop"\n',
        "e.jsonl, row 2",
        "dead_letters.policy",
        e_jsonl='{"x": {"a": 1}, "y": 1}\n{"y": 1}\n',
    ),
]
ALL = COMMAND_LINE + FILES + KEYS + VALUES + DATA


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFOREST_DATA", str(tmp_path / "sets"))


def told(command: str, code: int, of: str = "") -> str:
    """The line on stderr that tells the mistake; a file with several has a line for each."""
    done = CliRunner().invoke(root, command.split(), prog_name="streamforest")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    assert "internal error" not in done.output
    assert done.exit_code == code, done.output
    *before, line = done.stderr.splitlines()
    if line.startswith("{"):  # a run logs, and may have warned before it failed
        assert all(json.loads(one)["level"] == "warning" for one in before)
        return f"Error: {json.loads(line)['message']}"
    if before:
        assert before[0].endswith(f"{len(before)} problems")
        return next(one for one in (*before, line) if of in one)
    assert line.startswith("Error: ")
    return line


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def test_there_are_enough_and_each_is_another() -> None:
    assert len(ALL) >= 60
    assert len({mistake.name for mistake in ALL}) == len(ALL)


@pytest.mark.parametrize("mistake", ALL, ids=lambda mistake: mistake.name)
def test_a_mistake_is_one_line(mistake: Mistake, tmp_path: Path) -> None:
    write(tmp_path, {} if mistake.toml is None else {"p.toml": mistake.toml})
    write(tmp_path, mistake.files)
    line = told(mistake.command, mistake.code, mistake.wrong)
    assert mistake.wrong in line
    assert mistake.remedy in line


# ---- with a run that is there already


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of ten rows, in a folder with its pipeline file."""
    folder = tmp_path_factory.mktemp("run")
    text = CSV.replace("e.csv", str(folder / "e.csv")) + "[model]\nn_trees = 1\n"
    write(folder, {"p.toml": text, "e.csv": ROWS})
    command = ["run", str(folder / "p.toml"), "-q", "--set", f"run.folder={folder / 'run'}"]
    assert CliRunner().invoke(root, command).exit_code == 0
    return folder


AFTER_A_RUN = [
    # name, command, exit code, what is wrong, what to do; RUN: the settings of that run
    ("another seed", "run {p} -q {run} --set model.seed=5", 2, "model.seed", "--fresh"),
    ("another forest", "run {p} -q {run} --set model.kind=ncm", 2, "model.kind", "--fresh"),
    ("a snapshot that is not there", "snapshots pin {p} 77 {run}", 2, "77", "s-000000000010"),
    ("a misspelt snapshot", "snapshots pin {p} s-00000000001 {run}", 2, "s-00000000001", "did you"),
    ("whatif from nowhere", "whatif {p} 77 {run} --set n_trees=2", 2, "77", "s-000000000010"),
    (
        "a partition of a file",
        "snapshots list {p} {run} --partition 3",
        2,
        "--partition",
        "model_scope",
    ),
    ("another file in one folder", "run {q} -q {run}", 2, "source", "--fresh"),
    (
        "a file for a folder",
        "run {p} -q --set run.folder={p}",
        1,
        "p.toml: File exists",
        "run.folder",
    ),
    (
        "a port that is taken",
        "run {p} -q {run} --page --set metrics.port={port}",
        2,
        "metrics.port",
        "=",
    ),
]


@pytest.mark.parametrize(
    ("command", "code", "wrong", "remedy"),
    [case[1:] for case in AFTER_A_RUN],
    ids=[case[0] for case in AFTER_A_RUN],
)
def test_a_mistake_with_a_run(
    a_run: Path, command: str, code: int, wrong: str, remedy: str
) -> None:
    text = (a_run / "p.toml").read_text().replace("e.csv", "f.csv")
    write(a_run, {"q.toml": text, "f.csv": ROWS + "5,6,w\n"})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = told(
            command.format(
                p=a_run / "p.toml",
                q=a_run / "q.toml",
                run=f"--set run.folder={a_run / 'run'}",
                port=taken.getsockname()[1],
            ),
            code,
        )
    assert wrong in line
    assert remedy in line


# ---- with a broker


BROKERS = [
    # name, command, [kafka], exit code, what is wrong, what to do
    ("topics that are missing", "run p.toml -q", "", 1, "has no topic", "--create-topics"),
    (
        "TLS to plain text",
        "run p.toml -q",
        'security_protocol = "SSL"\n',
        1,
        "does not speak TLS",
        "PLAINTEXT",
    ),
    ("no dead-letter topic", "dlq list p.toml", "", 1, "p.dlq", "--create-topics"),
    ("no topic to sample", "check p.toml --sample", "", 1, "p.events", "--create-topics"),
]


@pytest.mark.parametrize(
    ("command", "more", "code", "wrong", "remedy"),
    [case[1:] for case in BROKERS],
    ids=[case[0] for case in BROKERS],
)
def test_a_mistake_with_a_broker(
    kafka_broker: Broker,
    tmp_path: Path,
    command: str,
    more: str,
    code: int,
    wrong: str,
    remedy: str,
) -> None:
    write(tmp_path, {"p.toml": KAFKA.format(servers=kafka_broker.servers) + more})
    line = told(command, code)
    assert wrong in line
    assert remedy in line


def test_a_server_that_is_no_broker(tmp_path: Path) -> None:
    with MetricsServer(PipelineMetrics("p"), "127.0.0.1", 0) as server:
        write(tmp_path, {"p.toml": KAFKA.format(servers=f"127.0.0.1:{server.port}")})
        line = told("dlq list p.toml --set kafka.retry_seconds=0", 1)
    assert f"127.0.0.1:{server.port}" in line
    assert "kafka.bootstrap_servers" in line
