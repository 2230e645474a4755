"""Tokens by client credentials: asked for, kept, renewed, refused; from a real issuer on loopback."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaError

from streamforest.io.kafka.auth import tokens
from streamforest.io.kafka.auth.secrets import SecretPlace
from streamforest.io.kafka.auth.tokens import (
    ClientCredentials,
    TokenError,
    TokenProvider,
    tokens_of,
)
from streamforest.observe import logs
from streamforest.testing.issuer import Issuer

SECRET = "s~cret/ with: all+sorts&of%signs"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer({"me:and/you": SECRET}, lifetime=100.0) as issuer:
        yield issuer


@pytest.fixture
def place(tmp_path: Path) -> SecretPlace:
    (tmp_path / "secret").write_text(SECRET)
    return SecretPlace("kafka.sasl_oauthbearer_client_secret_file", file=tmp_path / "secret")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that tokens live by."""
    now = [1_000.0]
    monkeypatch.setattr(tokens.time, "monotonic", lambda: now[0])
    return now


def provider(issuer: Issuer, place: SecretPlace, **changed: Any) -> TokenProvider:
    settings = {"endpoint": issuer.token_url, "client_id": "me:and/you", "secret": place}
    return TokenProvider(ClientCredentials(**{**settings, **changed}))


def test_a_token_is_kept_and_renewed_before_it_is_over(
    issuer: Issuer, place: SecretPlace, clock: list[float]
) -> None:
    mine = provider(issuer, place, scope="kafka")
    first = mine.token()
    clock[0] += 79.0
    assert mine.token() == first
    clock[0] += 2.0
    assert mine.token() != first
    assert (issuer.scopes, mine.fetched) == (["kafka", "kafka"], 2)


def test_one_that_is_valid_does_while_the_issuer_is_away(
    issuer: Issuer, place: SecretPlace, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    logs.tear_down()  # of a command in an earlier test
    caplog.set_level("INFO", "streamforest")
    mine = provider(issuer, place)
    first = mine.token()
    issuer.down = True
    clock[0] += 90.0
    assert mine.token() == first
    clock[0] += 11.0
    with pytest.raises(TokenError, match=r"cannot answer now \(503\)") as refused:
        mine.token()
    assert not refused.value.lasting
    issuer.down = False
    assert mine.token() != first
    warned, mended = caplog.messages  # each once
    assert "cannot answer now (503)" in warned
    assert "gives tokens again" in mended


def test_a_rotated_secret_is_read_again(
    issuer: Issuer, place: SecretPlace, clock: list[float]
) -> None:
    mine = provider(issuer, place)
    mine.token()
    issuer.clients["me:and/you"] = "another"
    clock[0] += 99.0
    with pytest.raises(TokenError, match=r"refuses client .*\(401, invalid_client\).*_secret_file"):
        mine.token()
    assert place.file is not None
    place.file.write_text("another")
    assert mine.token() == issuer.given[-1]


def test_a_secret_that_is_away_for_a_moment_is_no_end(
    issuer: Issuer, place: SecretPlace, clock: list[float]
) -> None:
    mine = provider(issuer, place)
    first = mine.token()
    assert place.file is not None
    place.file.unlink()
    clock[0] += 90.0
    assert mine.token() == first
    clock[0] += 11.0
    with pytest.raises(TokenError, match="_secret_file") as refused:
        mine.token()
    assert isinstance(refused.value, KafkaError), "any other error ends kafka-python's own task"
    place.file.write_text(SECRET)
    assert mine.token() != first


def test_what_is_refused_names_the_setting_and_no_secret(
    issuer: Issuer, place: SecretPlace
) -> None:
    for changed, message in (
        ({"scope": "forbidden"}, "correct kafka.sasl_oauthbearer_scope"),
        ({"client_id": "who"}, "correct kafka.sasl_oauthbearer_client_id or its secret"),
        ({"endpoint": f"{issuer.url}/x"}, "correct kafka.sasl_oauthbearer_token_endpoint_url"),
    ):
        with pytest.raises(TokenError) as refused:
            provider(issuer, place, **changed).token()
        assert message in str(refused.value)
        assert refused.value.lasting
        assert SECRET not in str(refused.value)
        assert isinstance(refused.value, KafkaError), (
            "kafka-python tries again after its own errors only"
        )


def test_the_query_of_an_endpoint_is_not_told(issuer: Issuer, place: SecretPlace) -> None:
    with pytest.raises(TokenError) as refused:
        provider(issuer, place, endpoint=f"{issuer.url}/x?code=hunter2").token()
    assert f"{issuer.url}/x refuses" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_an_endpoint_that_is_not_there_may_come_back(issuer: Issuer, place: SecretPlace) -> None:
    issuer.__exit__()
    with pytest.raises(TokenError, match="cannot be reached: connection refused") as refused:
        provider(issuer, place).token()
    assert not refused.value.lasting
    issuer.__init__({})  # type: ignore[misc]
    issuer.__enter__()


@pytest.mark.parametrize(
    "answer", [{}, {"access_token": ""}, {"access_token": "a\x01b"}, {"access_token": 7}]
)
def test_an_answer_without_a_token_is_refused(
    issuer: Issuer, place: SecretPlace, answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "answer", lambda login, fields: (200, answer))
    with pytest.raises(TokenError, match=r"access_token|JSON object"):
        provider(issuer, place).token()


def test_nobody_is_followed_elsewhere(
    issuer: Issuer, place: SecretPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "answer", lambda login, fields: (302, {}))
    with pytest.raises(TokenError, match=r"sends its clients elsewhere \(302\)"):
        provider(issuer, place).token()


def test_how_long_a_token_lives() -> None:
    claims = urlsafe_b64encode(json.dumps({"exp": time.time() + 500}).encode()).decode().rstrip("=")
    assert tokens._life({"expires_in": 30}, "a.b.c") == 30
    assert 490 < tokens._life({}, f"a.{claims}.c") <= 500
    assert tokens._life({"expires_in": "soon"}, "opaque") == tokens._life({}, "a.%.c") == 300


def test_clients_of_the_same_settings_share_their_tokens(place: SecretPlace) -> None:
    one = ClientCredentials("http://127.0.0.1/token", "a", place)
    other = ClientCredentials("http://127.0.0.1/token", "a", place)
    assert tokens_of(one) is tokens_of(other)
    assert tokens_of(one) is not tokens_of(ClientCredentials("http://127.0.0.1/token", "b", place))
    assert "secret" not in repr(tokens_of(one)).lower()
