"""Logins that change while a pipeline runs: tokens that expire, a secret and a password that are rotated."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.oracle import committed, judge
from integration.secured import Case, documented, lines
from integration.waiting import until

from streamforest import ConsistentForestClassifier
from streamforest.testing import SecureBroker
from streamforest.testing.forked import ForkedConsumer
from streamforest.testing.secure import CLIENT, SESSION_MS


@pytest.fixture
def case(secure_kafka_broker: SecureBroker, tmp_path: Path) -> Iterator[Case]:
    case = Case(secure_kafka_broker, tmp_path)
    issuer = secure_kafka_broker.issuer
    before = dict(issuer.clients), issuer.lifetime
    case.write(case.broker.token_settings())
    yield case
    issuer.clients, issuer.lifetime, issuer.down = *before, False
    secure_kafka_broker.revoke(CLIENT, *documented(case.name))
    secure_kafka_broker.revoke("alice", *documented(case.name))


def done(case: Case, n: int) -> bool:
    found = committed(case.broker.servers, case.name, case.events)
    return sum(offset for offset, _ in found.values()) >= n


def judged(case: Case, n: int) -> None:
    model = ConsistentForestClassifier(n_trees=3, seed=0)
    verdict = judge(case.broker.servers, case.name, case.events, model, case.folder)
    assert verdict.events == n


def run_for(case: Case, lives: int, seconds: float) -> None:
    """A run of several token lives, with events all the time."""
    issuer = case.broker.issuer
    issuer.lifetime = seconds
    case.broker.grant(CLIENT, *documented(case.name))
    case.send(100)
    sent = 100
    with ForkedConsumer(case.path, folder=case.folder.parent) as consumer:
        consumer.until_ready(timeout=200)
        before = len(issuer.given)
        while len(issuer.given) < before + lives:
            case.send(50, first=sent)
            sent += 50
            until(lambda n=sent: done(case, n))  # type: ignore[misc]
        assert consumer.stop() == 0, consumer.log()[-3_000:]
        assert not [m for m in consumer.messages() if "in doubt" in m or "cannot" in m]
        for token in issuer.given:
            assert token not in consumer.log()
    judged(case, sent)


def test_tokens_are_renewed_while_it_runs(case: Case) -> None:
    """The broker ends a session after three seconds, or when its token is over."""
    run_for(case, lives=3, seconds=3.0)


@pytest.mark.slow
def test_tokens_are_renewed_over_many_lives(case: Case) -> None:
    run_for(case, lives=30, seconds=4.0)


def refused(case: Case, **changed: str) -> str:
    """The one line of a refused start."""
    text = case.broker.token_settings()
    for key, value in changed.items():
        kept = [line for line in text.splitlines() if not line.startswith(f"{key} ")]
        text = "\n".join([*kept, f'{key} = "{value}"'])
    case.write(text)
    result = case.run("--log-format", "text")
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    *_, line = result.stderr.splitlines()
    for secret in (*case.broker.issuer.clients.values(), *case.broker.issuer.given):
        assert secret not in result.output
    return line


def test_each_refusal_says_what_to_do(case: Case, tmp_path: Path) -> None:
    issuer = case.broker.issuer
    (tmp_path / "wrong").write_text("wrong")
    wrong = refused(case, sasl_oauthbearer_client_secret_file=str(tmp_path / "wrong"))
    assert f"{issuer.token_url} refuses client '{CLIENT}' (401, invalid_client)" in wrong
    assert "its secret (kafka.sasl_oauthbearer_client_secret_file)" in wrong
    scope = refused(case, sasl_oauthbearer_scope="forbidden")
    assert "(400, invalid_scope): correct kafka.sasl_oauthbearer_scope" in scope
    place = refused(case, sasl_oauthbearer_token_endpoint_url=f"{issuer.url}/nowhere")
    assert "correct kafka.sasl_oauthbearer_token_endpoint_url" in place
    issuer.audience = "another service"
    try:
        audience = refused(case, sasl_oauthbearer_scope="other")  # not the token that is there
    finally:
        del issuer.audience
    assert f"refuses the login of client '{CLIENT}' by OAUTHBEARER" in audience
    assert "compare the issuer, audience and scope that the broker expects" in audience
    lacking = refused(case)
    assert f"client '{CLIENT}' is not allowed" in lacking


def test_an_issuer_that_is_away_is_waited_for(case: Case) -> None:
    """While it is away the token that is still valid does, and a new secret is read when it is back."""
    issuer = case.broker.issuer
    issuer.lifetime = 5.0
    case.broker.grant(CLIENT, *documented(case.name))
    secret = case.broker.secret_file
    case.send(100)
    with ForkedConsumer(case.path, folder=case.folder.parent) as consumer:
        consumer.until_ready(timeout=200)
        until(lambda: done(case, 100))
        issuer.down = True
        consumer.until(lambda c: "cannot answer now (503)" in c.log())
        issuer.clients[CLIENT] = secrets.token_urlsafe(18)
        secret.write_text(issuer.clients[CLIENT])
        issuer.down = False
        case.send(100, first=100)
        until(lambda: done(case, 200))
        assert consumer.stop() == 0, consumer.log()[-3_000:]
    judged(case, 200)


@pytest.mark.parametrize("first", ["file", pytest.param("broker", marks=pytest.mark.slow)])
def test_a_password_is_rotated_on_a_live_broker(case: Case, first: str) -> None:
    """The file is written before or after the broker knows the new password; nothing is restarted."""
    broker = case.broker
    broker.grant("alice", *documented(case.name))
    file = broker.password_file("alice")
    text = lines(
        broker,
        bootstrap_servers=broker.at("sasl_plaintext"),
        security_protocol="SASL_PLAINTEXT",
        ssl_cafile=None,
        sasl_mechanism="SCRAM-SHA-256",
    )
    case.write(text)
    case.send(100)
    old = broker.passwords["alice"]
    new = secrets.token_urlsafe(18)
    try:
        with ForkedConsumer(case.path, folder=case.folder.parent) as consumer:
            consumer.until_ready(timeout=200)
            until(lambda: done(case, 100))
            if first == "file":
                file.write_text(new)
            broker.set_password("alice", new)
            if first == "broker":
                consumer.until(lambda c: "refuses the login of user 'alice'" in c.log())
                file.write_text(new)
            sent, over = 100, time.monotonic() + 2 * SESSION_MS / 1000
            while time.monotonic() < over:  # every session of before ends in the meantime
                case.send(50, first=sent)
                sent += 50
                until(lambda n=sent: done(case, n))  # type: ignore[misc]
            assert consumer.stop() == 0, consumer.log()[-3_000:]
            assert new not in consumer.log()
            assert old not in consumer.log()
    finally:
        broker.set_password("alice", old)
        file.write_text(old)
    judged(case, sent)
