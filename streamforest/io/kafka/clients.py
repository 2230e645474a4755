"""Creates clients of a broker and asks it; a cluster in trouble is asked again for a while.

Every start and every command goes through here, so that there is one policy: `kafka.retry_seconds`. What does
not pass by waiting (a wrong password, authority or port, a permission that is missing) is reported at once.
What may pass (a broker that was killed a second ago and is still listed, one that hangs, a quorum that is not
there yet) is asked again until the time is over; then the error says in one line what was wrong last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    BrokerNotAvailableError,
    InvalidReplicationFactorError,
    KafkaError,
    UnknownBrokerIdError,
)

from streamforest.errors import BrokerError, BrokerUnavailable
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.auth.diagnosis import diagnose
from streamforest.io.kafka.compat.workarounds import create_client

log = logging.getLogger(__name__)

_CONNECT_MS = 5_000
_ANSWER_MS = 5_000  # for an answer to a question; it is asked again
_BACK_OFF = (0.1, 0.2, 0.5, 1.0, 2.0)
_REPEAT_AFTER = 10.0  # seconds after which a log line says again what is wrong
_NOT_YET = BrokerNotAvailableError, InvalidReplicationFactorError, UnknownBrokerIdError
T = TypeVar("T")


def with_retries(address: str | Connection, attempt: Callable[[], T]) -> T:
    """What an attempt returns; one that ends with BrokerUnavailable is made again, for `retry_seconds`."""
    connection = Connection.to(address)
    begun = time.monotonic()
    deadline, tell_at, failures = begun + connection.retry_seconds, begun, 0
    while True:
        try:
            return attempt()
        except BrokerUnavailable as error:
            now = time.monotonic()
            if now >= deadline:
                waited = f"; asked again for {now - begun:.0f} s (kafka.retry_seconds)"
                raise BrokerError(f"{error}{waited if failures else ''}") from error
            if now >= tell_at:
                log.warning("%s (asking again, for %.0f s at most)", error, deadline - now)
                tell_at = now + _REPEAT_AFTER
            pause = _BACK_OFF[min(failures, len(_BACK_OFF) - 1)]
            failures += 1
            time.sleep(min(pause, deadline - now))


def connect(maker: Callable[..., Any], address: str | Connection, **settings: Any) -> Any:
    """Create a client of kafka-python's; BrokerError says why it cannot connect."""
    return with_retries(address, lambda: _connect(maker, Connection.to(address), settings))


def _connect(maker: Callable[..., Any], connection: Connection, settings: dict[str, Any]) -> Any:
    """One attempt; BrokerUnavailable if another one may succeed."""
    trouble = diagnose(connection)
    if trouble is not None:
        raise (BrokerError if trouble.lasting else BrokerUnavailable)(trouble.text)
    try:
        arguments = connection.arguments()
        return create_client(maker, **arguments, bootstrap_timeout_ms=_CONNECT_MS, **settings)
    except KafkaError as error:
        raise BrokerUnavailable(
            f"the broker at {connection.servers} answered too late ({type(error).__name__})"
        ) from error


def ask(address: str | Connection, question: Callable[[Any], T]) -> T:
    """The answer to what is asked with an admin client; asked again from its beginning where that may help.

    A question may therefore be asked twice although the first was heard: one that creates something must
    bear that it is there already.
    """

    def attempt() -> T:
        with asking(address) as client:
            return question(client)

    return with_retries(address, attempt)


def persist(address: str | Connection, what: str, call: Callable[[], T]) -> T:
    """What a call of a client returns; one that fails for now is made again. `what` begins the error."""

    def attempt() -> T:
        try:
            return call()
        except AuthorizationError:
            raise  # the caller says which permission is missing
        except KafkaError as error:
            kind = BrokerUnavailable if may_pass(error) else BrokerError
            raise kind(f"{what}: {type(error).__name__}: {error}") from error

    return with_retries(address, attempt)


def admin(address: str | Connection) -> Any:
    """A client that creates and describes topics, groups and permissions."""
    return connect(KafkaAdminClient, address, request_timeout_ms=_ANSWER_MS)


@contextmanager
def asking(address: str | Connection) -> Iterator[Any]:
    """The same for the length of a block, once: BrokerUnavailable if the broker does not answer now."""
    connection = Connection.to(address)
    client = _connect(KafkaAdminClient, connection, {"request_timeout_ms": _ANSWER_MS})
    try:
        yield client
    except KafkaError as error:
        kind = BrokerUnavailable if may_pass(error) else BrokerError
        raise kind(
            f"the broker at {connection.servers} cannot be asked for its topics "
            f"({type(error).__name__}: {error})"
        ) from error
    finally:
        client.close()


def may_pass(error: KafkaError) -> bool:
    """Whether the same request may succeed later: a broker is away, or not yet what it should be."""
    return bool(error.retriable) or isinstance(error, _NOT_YET)
