"""A broker that asks who is there: what is wrong is told apart, and what is not allowed is named."""

from __future__ import annotations

import json
import logging
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.secured import NO_LOGIN, NO_TLS, Case, documented, lines
from kafka.errors import KafkaConnectionError

from streamforest.io.kafka.auth.connection import Security
from streamforest.io.kafka.auth.secrets import SecretPlace
from streamforest.io.kafka.log import kafka_log
from streamforest.io.kafka.permissions import Need
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.kafka.topics import Topics
from streamforest.observe import logs
from streamforest.testing import SecureBroker
from streamforest.testing.certificates import Authority
from streamforest.testing.forked import ForkedConsumer


@pytest.fixture
def case(secure_kafka_broker: SecureBroker, tmp_path: Path) -> Iterator[Case]:
    case = Case(secure_kafka_broker, tmp_path)
    yield case
    for user in ("alice", "carol"):
        secure_kafka_broker.revoke(user, *documented(case.name))


# ---- told apart


def broken(broker: SecureBroker, folder: Path, kind: str) -> tuple[str, str]:
    """The settings of one mistake, and what the message must say of it."""
    other = Authority(folder, "other")
    cert, key = other.client("mallory")
    at, plain = broker.at, broker.servers
    cases: dict[str, tuple[dict[str, str | None], str]] = {
        "wrong password": (
            {"sasl_password_file": str(broker.password_file("bob"))},
            "refuses the login of user 'alice' by SCRAM-SHA-512: wrong name or password",
        ),
        "wrong password, PLAIN": (
            {"sasl_password_file": str(broker.password_file("bob")), "sasl_mechanism": "PLAIN"},
            "refuses the login of user 'alice' by PLAIN: wrong name or password",
        ),
        "wrong user": ({"sasl_username": "eve"}, "refuses the login of user 'eve'"),
        "wrong authority": (
            {"ssl_cafile": str(other.file)},
            f"its certificate is not signed by kafka.ssl_cafile = '{other.file}'",
        ),
        "no authority": ({"ssl_cafile": None}, "not signed by an authority this machine knows"),
        "wrong host name": (
            {"bootstrap_servers": at("sasl_tls").replace("localhost", "127.0.0.1")},
            "its certificate is for 'localhost', not for '127.0.0.1'",
        ),
        "plain text to TLS": (
            {
                "bootstrap_servers": at("tls"),
                "security_protocol": "PLAINTEXT",
                **NO_TLS,
                **NO_LOGIN,
            },
            "speaks TLS, and kafka.security_protocol = 'PLAINTEXT' does not: use 'SSL'",
        ),
        "plain login to TLS": (
            {"security_protocol": "SASL_PLAINTEXT", **NO_TLS},
            "speaks TLS, and kafka.security_protocol = 'SASL_PLAINTEXT' does not: use 'SASL_SSL'",
        ),
        "TLS to plain text": (
            {"bootstrap_servers": plain},
            "does not speak TLS, it answers in plain text",
        ),
        "no login to SASL": (
            {"security_protocol": "SSL", **NO_LOGIN},
            "asks for a login, and kafka.security_protocol = 'SSL' has none: use 'SASL_SSL'",
        ),
        "login to no SASL": (
            {"bootstrap_servers": at("tls")},
            "takes no login, and kafka.security_protocol = 'SASL",
        ),
        "no client certificate": (
            {"bootstrap_servers": at("mutual_tls"), "security_protocol": "SSL", **NO_LOGIN},
            "asks for a client certificate",
        ),
        "wrong client certificate": (
            {
                "bootstrap_servers": at("mutual_tls"),
                "security_protocol": "SSL",
                "ssl_certfile": str(cert),
                "ssl_keyfile": str(key),
                **NO_LOGIN,
            },
            "refuses the certificate in kafka.ssl_certfile",
        ),
        "no such host": ({"bootstrap_servers": "no-such-host.invalid:9092"}, "no such host"),
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
def test_each_mistake_has_its_own_line(
    case: Case, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "streamforest.io.kafka.auth.diagnosis.QUIET", 3_600.0
    )  # however slow we are
    settings, message = broken(case.broker, tmp_path, kind)
    case.write(settings)
    begun = time.monotonic()
    done = case.run()
    assert message in done.stderr, done.stderr
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert time.monotonic() - begun < 15
    for password in case.broker.passwords.values():
        assert password not in done.stderr


def test_a_broker_that_is_not_there_is_waited_for_and_then_named(case: Case) -> None:
    with socket.socket() as taken:  # bound and not listening: refused, and nobody else gets it
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        case.write(f'bootstrap_servers = "127.0.0.1:{port}"\nretry_seconds = 2')
        begun = time.monotonic()
        done = case.run()
    waiting, error = done.stderr.splitlines()
    reason = f"no broker at 127.0.0.1:{port}: connection refused; start it"
    assert reason in waiting, done.stderr
    assert "asking again, for 2 s at most" in waiting
    assert done.exit_code == 1
    assert reason in error
    assert "asked again for 2 s (kafka.retry_seconds)" in error
    assert 2 <= time.monotonic() - begun <= time.monotonic() - begun < 15


def test_a_port_that_is_not_kafka_is_named(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamforest.io.kafka.auth.diagnosis.STEP", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        case.write(f'bootstrap_servers = "127.0.0.1:{port}"\nretry_seconds = 0')
        begun = time.monotonic()
        done = case.run()
    assert done.exit_code == 1
    assert "is not a Kafka broker, or it is still starting: no answer within" in done.stderr
    assert time.monotonic() - begun < 20


def test_a_running_pipeline_says_why_it_cannot_reach_its_broker(
    case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A password that was changed meanwhile looks like a broken connection to the client."""
    password = SecretPlace("kafka.sasl_password_file", file=case.broker.password_file("bob"))
    security = Security("SASL_SSL", case.broker.authority.file, user="alice", password=password)
    settings = KafkaSettings(
        case.broker.at("sasl_tls"), Topics.of(case.name), case.name, security=security
    )
    waiting = kafka_log(settings).membership
    monkeypatch.setattr("streamforest.io.kafka.retry.time.sleep", lambda seconds: None)
    logs.tear_down()
    with caplog.at_level(logging.WARNING, "streamforest"):
        for _ in range(12):
            waiting.retry.back_off("poll", KafkaConnectionError("socket disconnected"))
    messages = [record.getMessage() for record in caplog.records]
    assert sum("poll failed" in message for message in messages) == 1, "once until it succeeds"
    assert sum("refuses the login of user 'alice'" in message for message in messages) == 1


# ---- permissions


def test_each_missing_permission_is_named(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamforest.io.kafka.auth.diagnosis.QUIET", 3_600.0)
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
    assert f"not allowed to create topic '{name}.events'" in done.stderr
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
            consumer.expect_exit(1, 60)
            last = json.loads(consumer.log().splitlines()[-1])
            assert last["level"] == "error"
            assert last["message"].startswith(f"User:alice is not allowed {need}"), last
        case.broker.grant("alice", need)
    assert case.run().exit_code == 0
