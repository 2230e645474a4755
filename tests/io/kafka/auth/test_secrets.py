"""A secret is shown to nobody who does not ask for it by name."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import SaslAuthenticateRequest

from streamforest.errors import ConfigError
from streamforest.io.kafka.auth.connection import Connection, Security
from streamforest.io.kafka.auth.secrets import HIDDEN, Secret, SecretPlace, hide_logins
from streamforest.io.kafka.compat.logins import use_current_logins
from streamforest.observe import logs

WORD = "open-sesame-4711"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> SecretPlace:
    monkeypatch.setenv("THE_PLACE", WORD)
    return SecretPlace("kafka.sasl_password_env", variable="THE_PLACE")


def test_every_way_to_write_it_down_hides_it(place: SecretPlace) -> None:
    secret = place.read()
    for hidden in (secret, secret.reveal()):
        assert {repr(hidden), str(hidden), f"{hidden:>8}", "%s" % hidden} == {HIDDEN}  # noqa: UP031
        assert WORD not in f"{[hidden]} { ({'p': hidden}) }"
        record = logging.LogRecord("a", 10, "f", 1, "%s %r", (hidden, hidden), None)
        assert record.getMessage() == f"{HIDDEN} {HIDDEN}"
    for refuse in (json.dumps, pickle.dumps, copy.deepcopy, msgspec.json.encode):
        with pytest.raises(TypeError) as caught:
            refuse(secret)
        assert WORD not in str(caught.value)
    assert not hasattr(secret, "__dict__")


def test_the_library_gets_the_true_one(place: SecretPlace) -> None:
    text = place.read().reveal()
    assert text.encode() == WORD.encode()
    assert "\0".join(["a", text]).encode().endswith(WORD.encode())


def test_settings_hold_the_place_and_never_the_secret(place: SecretPlace) -> None:
    security = Security("SASL_PLAINTEXT", user="alice", password=place)
    connection = Connection("h:1", security)
    assert WORD not in f"{connection!r} {asdict(connection)} {vars(connection)}"
    arguments = connection.arguments()
    assert WORD not in f"{arguments}"
    assert arguments["sasl_plain_password"] == WORD
    assert arguments["bootstrap_servers"] == "h:1"


def test_a_file_ends_with_a_line_and_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "password"
    place = SecretPlace("kafka.sasl_password_file", file=file)
    for text, wanted in (("one\n", "one"), ("two\r\n", "two"), (" three ", " three ")):
        file.write_bytes(text.encode())
        assert place.read().reveal() == wanted


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"", "empty"),
        (b"\n", "empty"),
        (b"\xff", "UTF-8"),
        (b"a" * 70_000, "large"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_its_name_or_content(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "secret-name"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        SecretPlace("kafka.sasl_password_file", file=file).read()
    told = "".join(traceback.format_exception(caught.value))
    assert "kafka.sasl_password_file" in str(caught.value)
    assert "secret-name" not in told


def test_a_password_in_place_of_a_variables_name_is_not_repeated() -> None:
    with pytest.raises(
        ConfigError, match=r"kafka\.sasl_password_env: the environment has no"
    ) as caught:
        SecretPlace("kafka.sasl_password_env", variable=WORD).read()
    assert WORD not in "".join(traceback.format_exception(caught.value))


def test_debug_records_of_the_library_carry_no_login(caplog: pytest.LogCaptureFixture) -> None:
    hide_logins()
    hide_logins()
    raw = b"\0alice\0" + WORD.encode()
    request = SaslAuthenticateRequest(raw)
    assert WORD in f"{request}", "mended: requests no longer write out the login"
    for name in ("kafka.net.connection", "kafka.protocol.parser"):
        logger = logging.getLogger(name)
        assert len(logger.filters) == 1
        with caplog.at_level(logging.DEBUG, logger=name):
            logger.debug("%s Request %d: %s", "conn", 3, request)
            logger.debug("%s Send: %r", "conn", raw)
    assert WORD not in caplog.text
    assert "<SaslAuthenticateRequest>" in caplog.text


def test_secrets_are_equal_to_nothing_but_themselves() -> None:
    assert Secret("a") != Secret("a")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_that_was_rotated_is_used_at_the_next_login(
    tmp_path: Path, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    logs.tear_down()  # of a command in an earlier test
    use_current_logins()
    file = tmp_path / "password"
    file.write_text(WORD)
    security = Security(
        "SASL_SSL",
        mechanism=mechanism,
        user="alice",
        password=SecretPlace("kafka.sasl_password_file", file=file),
    )
    arguments = security.login_arguments()  # of a client that lives on
    assert WORD not in f"{arguments}{arguments!r}"

    def password() -> str:
        login = get_sasl_mechanism(mechanism)(host="h", **arguments)
        if mechanism == "PLAIN":
            return str(login.auth_bytes().decode().split("\0")[2])
        return str(login._scram_client.password.decode())

    assert password() == WORD
    file.write_text("another")
    assert password() == "another"
    file.unlink()  # in the middle of being replaced
    assert password() == WORD
    assert "the secret that was read before is used" in caplog.text
    assert WORD not in caplog.text


def test_a_password_that_is_away_for_a_moment_is_no_end_of_new_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run makes new clients when its broker comes back; at the start the file has to be there."""
    logs.tear_down()  # of a command in an earlier test
    file = tmp_path / "password"
    place = SecretPlace("kafka.sasl_password_file", file=file)
    security = Security("SASL_SSL", mechanism="PLAIN", user="alice", password=place)
    with pytest.raises(ConfigError, match="cannot be read"):
        security.login_arguments()
    file.write_text(WORD)
    security.login_arguments()
    file.unlink()  # in the middle of being replaced
    arguments = security.login_arguments()
    assert str.__str__(arguments["sasl_plain_password"]) == WORD
    assert "the secret that was read before is used" in caplog.text
    file.write_text("another")
    arguments = security.login_arguments()
    assert str.__str__(arguments["sasl_plain_password"]) == "another"
    assert WORD not in f"{caplog.text}{security!r}{json.dumps(asdict(security), default=str)}"
