"""Runs on a broker that asks who is there: what is allowed works, and nothing leaks."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from integration.oracle import judge, read_all
from integration.secured import NO_LOGIN, Case, documented, lines

from streamforest import ConsistentForestClassifier
from streamforest.cli import root
from streamforest.io.kafka.permissions import Need
from streamforest.io.kafka.topics import Topics
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.server import MetricsServer
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.testing import SecureBroker
from streamforest.testing.forked import ForkedConsumer
from streamforest.testing.secure import CLIENT


@pytest.fixture
def case(secure_kafka_broker: SecureBroker, tmp_path: Path) -> Iterator[Case]:
    case = Case(secure_kafka_broker, tmp_path)
    yield case
    for user in ("alice", "carol"):
        secure_kafka_broker.revoke(user, *documented(case.name))


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
            consumer.expect_exit(-9, 200)
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
            bootstrap_servers=case.broker.at("mutual_tls"),
            security_protocol="SSL",
            ssl_certfile=str(cert),
            ssl_keyfile=str(key),
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

    sending = ["replay", "digits", "--topic", topics.events, "--max-events", "60", "--bad", "0.3"]
    sending += ["--bootstrap-servers", broker.at("sasl_tls"), "-q", "--partitions", "2"]
    sending += [
        "--set",
        "kafka.security_protocol=SASL_SSL",
        "--set",
        f"kafka.ssl_cafile={broker.authority.file}",
    ]
    monkeypatch.setenv("STREAMFOREST_KAFKA__SASL_USERNAME", "alice")
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
        ("SECURITY_PROTOCOL", "SASL_SSL"),
        ("SASL_USERNAME", "alice"),
        ("SSL_CAFILE", str(case.broker.authority.file)),
        ("SASL_PASSWORD_FILE", str(case.broker.password_file("alice"))),
    ):
        monkeypatch.setenv(f"STREAMFOREST_KAFKA__{key}", value)
    arguments = [
        "bench",
        "pipeline",
        "--bootstrap-servers",
        case.broker.at("sasl_tls"),
        "--no-stall",
    ]
    done = CliRunner().invoke(root, arguments)
    assert (done.exit_code, "not allowed to create topic 'bench-" in done.stderr) == (1, True)


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
    assert "Cannot tell which one the last commit names: " in asked.stderr
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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_the_password_is_nowhere_after_a_run(
    case: Case, everything_logged: io.StringIO, mechanism: str
) -> None:
    broker, secrets = case.broker, [case.broker.passwords["alice"]]
    by_token = mechanism == "OAUTHBEARER"
    broker.grant(CLIENT if by_token else "alice", *documented(case.name))
    case.write(broker.token_settings() if by_token else broker.settings("alice", mechanism))
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
    if by_token:
        broker.revoke(CLIENT, *documented(case.name))
        assert broker.issuer.given
        secrets += [*broker.issuer.clients.values(), *broker.issuer.given]
    for text in (*said, logged):
        assert not [secret for secret in secrets if secret in text]


def test_the_password_is_in_no_traceback(case: Case) -> None:
    """Wrong in every way a login can be, with tracebacks asked for, in a process of its own."""
    wrong = "wrong-" + uuid.uuid4().hex
    (case.path.parent / "pw").write_text(wrong)
    kafka = lines(
        case.broker, sasl_password_file=str(case.path.parent / "pw"), sasl_mechanism="PLAIN"
    )
    case.write(kafka)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from streamforest.__main__ import main; main()",
            "run",
            str(case.path),
        ],
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
    from streamforest.io.kafka.auth.connection import Connection
    from streamforest.io.kafka.auth.diagnosis import diagnose
    from streamforest.io.kafka.auth.probe import Probe

    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(Probe, "nodes", lambda self: [("127.0.0.1", port)])
        trouble = diagnose(Connection(case.broker.servers))
    assert trouble is not None
    assert not trouble.lasting
    assert (
        f"no broker at 127.0.0.1:{port} (to which the broker at {case.broker.servers} sends its"
        in (trouble.text)
    )
