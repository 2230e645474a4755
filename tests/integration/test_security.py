"""A broker that asks who is there: what is wrong is told apart, what is allowed works, nothing leaks."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from integration.feed import events, send
from integration.oracle import judge, read_all
from kafka.errors import KafkaConnectionError

from streamforest import ConsistentForestClassifier
from streamforest.cli import root
from streamforest.observe.metrics import PipelineMetrics
from streamforest.observe.server import MetricsServer
from streamforest.runtime.config import load_pipeline
from streamforest.runtime.opening import opened
from streamforest.stream.decoders import by_value
from streamforest.stream.events import decoder
from streamforest.stream.kafka import KafkaLog
from streamforest.stream.kafka_permissions import Need
from streamforest.stream.kafka_settings import KafkaSettings
from streamforest.stream.kafka_topics import Topics, ensure_topics
from streamforest.stream.secrets import SecretPlace
from streamforest.stream.security import Security
from streamforest.testing import SecureBroker
from streamforest.testing.certificates import Authority
from streamforest.testing.forked import ForkedConsumer

PIPELINE = """
[pipeline]
name = "{name}"
[kafka]
{kafka}
session_ms = 6000
[model]
n_trees = 3
[run]
batch = 100
commit_ms = 100
snapshot_every = 300
folder = "{folder}"
[metrics]
port = 0
"""


def documented(name: str) -> list[Need]:
    """The permissions that the README lists, and no more."""
    return [
        Need("Read", "topic", f"{name}.events"),
        Need("Write", "topic", f"{name}.predictions"),
        Need("Write", "topic", f"{name}.dlq"),
        Need("Read", "topic", f"{name}.journal"),
        Need("Write", "topic", f"{name}.journal"),
        Need("Read", "group", name),
        Need("Write", "transactional id", name),
    ]


class Case:
    """A pipeline of its own on the secured broker, its topics made by the operator."""

    def __init__(self, broker: SecureBroker, folder: Path) -> None:
        self.broker = broker
        self.name = f"secure-{uuid.uuid4().hex[:8]}"
        self.events = f"{self.name}.events"
        self.folder = folder / "run"
        self.path = folder / "p.toml"
        self.write(broker.settings("alice"))
        ensure_topics(broker.servers, Topics.of(self.name), create=True, partitions=2)

    def write(self, kafka: str) -> None:
        text = PIPELINE.format(name=self.name, kafka=kafka, folder=self.folder)
        self.path.write_text(text, encoding="utf-8")

    def run(self, *arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(
            root, ["run", str(self.path), "--drain", "-q", *arguments], env=environ
        )

    def send(self, n: int, first: int = 0) -> None:
        send(self.broker.servers, self.events, events(n, seed=first), 2, first)


@pytest.fixture
def case(secure_kafka_broker: SecureBroker, tmp_path: Path) -> Iterator[Case]:
    case = Case(secure_kafka_broker, tmp_path)
    yield case
    for user in ("alice", "carol"):
        secure_kafka_broker.revoke(user, *documented(case.name))


# ---- told apart


def lines(broker: SecureBroker, **changed: str | None) -> str:
    """`[kafka]` of a good login over TLS, with some of it changed or left out."""
    told: dict[str, str | None] = {
        "servers": broker.at("sasl_tls"),
        "security": "sasl-tls",
        "ca_file": str(broker.authority.file),
        "user": "alice",
        "password_file": str(broker.password_file("alice")),
        **changed,
    }
    text = "".join(f'{key} = "{value}"\n' for key, value in told.items() if value is not None)
    return text + (
        "allow_unencrypted_login = true\n" if told["security"] == "sasl-plaintext" else ""
    )


NO_LOGIN: dict[str, str | None] = {"user": None, "password_file": None}
NO_TLS: dict[str, str | None] = {"ca_file": None}


def broken(broker: SecureBroker, folder: Path, kind: str) -> tuple[str, str]:
    """The settings of one mistake, and what the message must say of it."""
    other = Authority(folder, "other")
    cert, key = other.client("mallory")
    at, plain = broker.at, broker.servers
    cases: dict[str, tuple[dict[str, str | None], str]] = {
        "wrong password": (
            {"password_file": str(broker.password_file("bob"))},
            "refuses the login of user 'alice' by SCRAM-SHA-512: wrong name or password",
        ),
        "wrong password, PLAIN": (
            {"password_file": str(broker.password_file("bob")), "sasl_mechanism": "PLAIN"},
            "refuses the login of user 'alice' by PLAIN: wrong name or password",
        ),
        "wrong user": ({"user": "eve"}, "refuses the login of user 'eve'"),
        "wrong authority": (
            {"ca_file": str(other.file)},
            f"its certificate is not signed by kafka.ca_file = '{other.file}'",
        ),
        "no authority": ({"ca_file": None}, "not signed by an authority this machine knows"),
        "wrong host name": (
            {"servers": at("sasl_tls").replace("localhost", "127.0.0.1")},
            "its certificate is for 'localhost', not for '127.0.0.1'",
        ),
        "plain text to TLS": (
            {"servers": at("tls"), "security": "plaintext", **NO_TLS, **NO_LOGIN},
            "speaks TLS, and kafka.security = 'plaintext' does not: use 'tls'",
        ),
        "plain login to TLS": (
            {"security": "sasl-plaintext", **NO_TLS},
            "speaks TLS, and kafka.security = 'sasl-plaintext' does not: use 'sasl-tls'",
        ),
        "TLS to plain text": (
            {"servers": plain},
            "does not speak TLS, it answers in plain text",
        ),
        "no login to SASL": (
            {"security": "tls", **NO_LOGIN},
            "asks for a login, and kafka.security = 'tls' has none: use 'sasl-tls'",
        ),
        "login to no SASL": ({"servers": at("tls")}, "takes no login, and kafka.security = 'sasl"),
        "no client certificate": (
            {"servers": at("mutual_tls"), "security": "tls", **NO_LOGIN},
            "asks for a client certificate",
        ),
        "wrong client certificate": (
            {
                "servers": at("mutual_tls"),
                "security": "tls",
                "cert_file": str(cert),
                "key_file": str(key),
                **NO_LOGIN,
            },
            "refuses the certificate in kafka.cert_file",
        ),
        "no such host": ({"servers": "no-such-host.invalid:9092"}, "no such host"),
    }
    changed, message = cases[kind]
    return lines(broker, **changed), message


KINDS = [
    "wrong password",
    "wrong password, PLAIN",
    "wrong user",
    "wrong authority",
    "no authority",
    "wrong host name",
    "plain text to TLS",
    "plain login to TLS",
    "TLS to plain text",
    "no login to SASL",
    "login to no SASL",
    "no client certificate",
    "wrong client certificate",
]


@pytest.mark.parametrize("kind", KINDS)
def test_each_mistake_has_its_own_line(case: Case, tmp_path: Path, kind: str) -> None:
    settings, message = broken(case.broker, tmp_path, kind)
    case.write(settings)
    begun = time.monotonic()
    done = case.run()
    assert message in done.stderr, done.stderr
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert time.monotonic() - begun < 15
    for password in case.broker.passwords.values():
        assert password not in done.stderr


def test_a_broker_that_is_not_there_is_waited_for_and_then_named(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamforest.stream.kafka_clients._PATIENCE_MS", 1_500)
    with socket.socket() as taken:  # bound and not listening: refused, and nobody else gets it
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        case.write(f'servers = "127.0.0.1:{port}"')
        begun = time.monotonic()
        done = case.run()
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"no broker at 127.0.0.1:{port}: connection refused; start it" in done.stderr
    assert 1.5 <= time.monotonic() - begun < 15


def test_a_port_that_is_not_kafka_is_named(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamforest.stream.kafka_clients._PATIENCE_MS", 1_500)
    monkeypatch.setattr("streamforest.stream.diagnosis.STEP", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        case.write(f'servers = "127.0.0.1:{port}"')
        begun = time.monotonic()
        done = case.run()
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "is no Kafka broker, or one that is starting: no answer within" in done.stderr
    assert time.monotonic() - begun < 20


def test_a_running_pipeline_says_why_it_cannot_reach_its_broker(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that was changed meanwhile looks like a broken connection to the client."""
    password = SecretPlace("kafka.password_file", file=case.broker.password_file("bob"))
    security = Security("sasl-tls", case.broker.authority.file, user="alice", password=password)
    settings = KafkaSettings(
        case.broker.at("sasl_tls"), Topics.of(case.name), case.name, security=security
    )
    waiting = KafkaLog(settings, by_value(decoder()))
    monkeypatch.setattr("streamforest.stream.kafka_patience.time.sleep", lambda seconds: None)
    told: list[str] = []
    monkeypatch.setattr(
        "streamforest.stream.kafka_patience.log.warning",
        lambda text, *args: told.append(text % args),
    )
    for _ in range(6):
        waiting.patience.wait_out("poll", KafkaConnectionError("socket disconnected"))
    assert sum("poll failed" in line for line in told) == 6
    assert sum("refuses the login of user 'alice'" in line for line in told) == 1


# ---- permissions


def test_each_missing_permission_is_named(case: Case) -> None:
    needs = documented(case.name)
    done = case.run()
    assert done.exit_code == 1
    for need in needs[:-1]:  # all that the broker can be asked about, at once
        assert str(need) in done.stderr
    for need in needs:
        case.broker.grant("alice", *needs)
        case.broker.revoke("alice", need)
        done = case.run()
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
        assert f"User:alice is not allowed {need} at localhost" in done.stderr
        assert f"--operation {need.operation} " in done.stderr
        case.broker.grant("alice", need)
    assert case.run().exit_code == 0


def test_topics_are_made_by_who_may(case: Case) -> None:
    name = f"secure-{uuid.uuid4().hex[:8]}"
    needs = documented(name)
    text = case.path.read_text().replace(case.name, name)
    case.path.write_text(text)
    case.broker.grant("alice", *needs)
    done = case.run("--create-topics")
    assert done.exit_code == 1
    assert f"not allowed to make topic '{name}.events'" in done.stderr
    creates = [Need("Create", "topic", topic) for topic in {n.name for n in needs[:5]}]
    case.broker.grant("alice", *creates)
    done = case.run("--create-topics")
    assert done.exit_code == 0, done.stderr
    case.broker.revoke("alice", *needs, *creates)


def test_a_permission_taken_away_while_it_runs_ends_it_by_name(case: Case) -> None:
    needs = documented(case.name)
    case.broker.grant("alice", *needs)
    for need in (needs[1], needs[5]):  # writing predictions; the group
        with ForkedConsumer(case.path, folder=case.folder.parent) as consumer:
            consumer.until_ready(timeout=200)
            case.broker.revoke("alice", need)
            case.send(200)
            assert consumer.wait_or_tell(60) == 1
            last = consumer.log().splitlines()[-1]
            assert last.startswith(f"Error: User:alice is not allowed {need}"), consumer.log()
        case.broker.grant("alice", need)
    assert case.run().exit_code == 0


# ---- a whole run


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_a_run_with_the_documented_permissions_is_exact(case: Case, mechanism: str) -> None:
    case.broker.grant("alice", *documented(case.name))
    case.write(case.broker.settings("alice", mechanism))
    case.send(1_500)
    killed = mechanism == "SCRAM-SHA-512"
    if killed:
        arguments = {"failpoint": "before-commit", "passes": 4, "folder": case.folder.parent}
        with ForkedConsumer(case.path, "--drain", **arguments) as consumer:  # type: ignore[arg-type]
            assert consumer.wait_or_tell(200) == -9, consumer.log()
    done = case.run()
    assert done.exit_code == 0, done.stderr
    model = ConsistentForestClassifier(n_trees=3, seed=0)
    verdict = judge(case.broker.servers, case.name, case.events, model, case.folder)
    assert verdict.events == 1_500
    assert verdict.dead > 0


def test_a_client_certificate_is_a_login_too(case: Case) -> None:
    cert, key = case.broker.authority.client("carol")
    case.write(
        lines(
            case.broker,
            servers=case.broker.at("mutual_tls"),
            security="tls",
            cert_file=str(cert),
            key_file=str(key),
            **NO_LOGIN,
        )
    )
    case.send(200)
    assert "the client certificate's subject is not allowed" in case.run().stderr
    case.broker.grant("carol", *documented(case.name))
    assert case.run().exit_code == 0


def test_at_least_once_needs_no_transactional_id(case: Case) -> None:
    case.broker.grant("alice", *documented(case.name)[:-1])
    case.send(300)
    done = case.run("--set", "kafka.delivery=at-least-once")
    assert done.exit_code == 0, done.stderr


def test_the_other_commands_log_in_too(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, topics = case.broker, Topics.of(case.name)
    replay = f"{topics.dead_letters}.replay"
    runner = CliRunner()

    def invoke(*arguments: str) -> Result:
        return runner.invoke(root, list(arguments))

    sending = ["replay", "digits", "--topic", topics.events, "--events", "60", "--bad", "0.3"]
    sending += ["--servers", broker.at("sasl_tls"), "-q", "--partitions", "2"]
    sending += [
        "--set",
        "kafka.security=sasl-tls",
        "--set",
        f"kafka.ca_file={broker.authority.file}",
    ]
    monkeypatch.setenv("STREAMFOREST_KAFKA__USER", "alice")
    monkeypatch.setenv("STREAMFOREST_KAFKA_PASSWORD", broker.passwords["alice"])
    done = invoke(*sending)
    assert done.exit_code == 1
    assert f"not allowed Write on topic '{topics.events}'" in done.stderr
    writing = Need("Write", "topic", topics.events)
    broker.grant("alice", writing)
    done = invoke(*sending)
    assert done.exit_code == 0, done.stderr
    broker.grant("alice", *documented(case.name))
    assert case.run().exit_code == 0
    done = invoke("dlq", "list", str(case.path))
    assert (done.exit_code, f"Read on topic '{topics.dead_letters}'" in done.stderr) == (1, True)
    needs = [
        Need("Read", "topic", topics.dead_letters),
        Need("Read", "group", replay),
        Need("Write", "transactional id", replay),
    ]
    broker.grant("alice", needs[0])
    done = invoke("dlq", "list", str(case.path))
    assert done.exit_code == 0, done.stderr
    assert "undecodable" in done.stdout
    done = invoke("dlq", "replay", str(case.path))
    assert f"not allowed Read on group '{replay}'" in done.stderr
    broker.grant("alice", needs[1])
    done = invoke("dlq", "replay", str(case.path))
    assert f"not allowed Write on transactional id '{replay}'" in done.stderr
    broker.grant("alice", *needs)
    done = invoke("dlq", "replay", str(case.path))
    assert done.exit_code == 0, done.stderr
    assert "sent back" in done.stdout
    broker.revoke("alice", writing, *needs)


def test_the_bench_logs_in_too(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the environment says; refused here, since alice may make no topics."""
    for key, value in (
        ("SECURITY", "sasl-tls"),
        ("USER", "alice"),
        ("CA_FILE", str(case.broker.authority.file)),
        ("PASSWORD_FILE", str(case.broker.password_file("alice"))),
    ):
        monkeypatch.setenv(f"STREAMFOREST_KAFKA__{key}", value)
    arguments = ["bench", "pipeline", "--servers", case.broker.at("sasl_tls"), "--no-stall"]
    done = CliRunner().invoke(root, arguments)
    assert (done.exit_code, "not allowed to make topic 'bench-" in done.stderr) == (1, True)


def test_snapshots_are_listed_with_what_the_broker_says(case: Case) -> None:
    case.broker.grant("alice", *documented(case.name))
    case.send(700)
    assert case.run().exit_code == 0
    runner = CliRunner()
    listed = runner.invoke(root, ["snapshots", "list", str(case.path)])
    assert (listed.exit_code, listed.stderr) == (0, "")
    *_, newest, last = listed.stdout.splitlines()
    assert newest.split()[0] == "s-000000000700"
    assert newest.endswith("named")
    assert last.endswith("after event 700")
    pinned = runner.invoke(root, ["snapshots", "pin", str(case.path), "700"])
    assert pinned.exit_code == 0
    case.broker.revoke("alice", Need("Read", "group", case.name))
    asked = runner.invoke(root, ["snapshots", "list", str(case.path), "--json"])
    assert asked.exit_code == 0, "what is on disk is listed whatever the broker says"
    assert "Which one the last commit names is not known: " in asked.stderr
    told = json.loads(asked.stdout.splitlines()[-1])
    assert (told["name"], told["named"], told["pinned"]) == ("s-000000000700", None, True)


# ---- nothing leaks


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """All that any logger of the process says at any level, tracebacks included."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s %(args)s"))
    logger = logging.getLogger()
    names = ("", "kafka", "streamforest")
    before = {n: (logging.getLogger(n).level, logging.getLogger(n).propagate) for n in names}
    logger.addHandler(handler)
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger(name).propagate = True
    yield out
    logger.removeHandler(handler)
    for name, (level, propagate) in before.items():
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).propagate = propagate


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_the_password_is_nowhere_after_a_run(
    case: Case, everything_logged: io.StringIO, mechanism: str
) -> None:
    broker, secret = case.broker, case.broker.passwords["alice"]
    broker.grant("alice", *documented(case.name))
    case.write(broker.settings("alice", mechanism))
    case.send(600)
    said = [CliRunner().invoke(root, ["check", str(case.path)]).output]
    pipeline = load_pipeline(case.path)
    said.append(repr(pipeline))
    metrics = PipelineMetrics(case.name)
    with (
        MetricsServer(metrics, "127.0.0.1", 0) as server,
        opened(pipeline, drain=True, telemetry=metrics) as run,
    ):
        assert run.consume() == "finished"
        assert run.events == 600
        for path in ("metrics", "readyz", "livez"):
            url = f"http://127.0.0.1:{server.port}/{path}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                said.append(answer.read().decode())
        said.append(repr(vars(run.log)))
    for topic in (f"{case.name}.journal", f"{case.name}.predictions", f"{case.name}.dlq"):
        for records in read_all(broker.servers, topic).values():
            said += [repr(record) for record in records]
    files = [path for path in case.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".safetensors" for path in files)
    said += [path.read_bytes().decode("latin-1") for path in files]
    logged = everything_logged.getvalue()
    assert "SaslAuthenticateRequest" in logged, "the library's own debug output was not captured"
    assert "kafka.protocol.parser DEBUG" in logged
    for text in (*said, logged):
        assert secret not in text


def test_the_password_is_in_no_traceback(case: Case) -> None:
    """Wrong in every way a login can be, with tracebacks asked for, in a process of its own."""
    wrong = "wrong-" + uuid.uuid4().hex
    (case.path.parent / "pw").write_text(wrong)
    kafka = lines(case.broker, password_file=str(case.path.parent / "pw"), sasl_mechanism="PLAIN")
    case.write(kafka)
    done = subprocess.run(
        [sys.executable, "-c", "from streamforest.cli import main; main()", "run", str(case.path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "STREAMFOREST_DEBUG": "1", "PYTHONFAULTHANDLER": "1"},
    )
    assert done.returncode == 1
    assert "refuses the login" in done.stderr
    assert wrong not in done.stdout + done.stderr


def test_the_brokers_own_files_are_for_its_owner_only(secure_kafka_broker: SecureBroker) -> None:
    properties = secure_kafka_broker.broker.folder / "server.properties"
    assert properties.stat().st_mode & 0o077 == 0
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    for password in secure_kafka_broker.passwords.values():
        assert password not in listed


def test_a_secured_broker_keeps_its_ports_and_users_over_a_restart(
    secure_kafka_broker: SecureBroker, case: Case
) -> None:
    broker = secure_kafka_broker
    broker.grant("alice", *documented(case.name))
    before = broker.at("sasl_tls")
    broker.broker._signal(signal.SIGTERM, 30)
    broker.broker.start()
    assert broker.at("sasl_tls") == before
    assert case.run().exit_code == 0


def test_where_a_broker_sends_its_clients_is_looked_at(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most usual mistake of all: a broker that advertises an address nobody can reach."""
    from streamforest.stream.diagnosis import diagnose
    from streamforest.stream.security import Connection
    from streamforest.stream.wire import Wire

    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(Wire, "nodes", lambda self: [("127.0.0.1", port)])
        trouble = diagnose(Connection(case.broker.servers))
    assert trouble is not None
    assert not trouble.lasting
    assert (
        f"no broker at 127.0.0.1:{port} (where the broker at {case.broker.servers} sends its"
        in (trouble.text)
    )
