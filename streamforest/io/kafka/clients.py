"""Creates clients of a broker; if one cannot connect, the error says why in one line, and soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from streamforest.errors import BrokerError
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.auth.diagnosis import diagnose
from streamforest.io.kafka.compat.workarounds import create_client

_CONNECT_MS = 10_000


def connect(maker: Callable[..., Any], address: str | Connection, **settings: Any) -> Any:
    """Create a client of kafka-python's; BrokerError says why it cannot connect.

    What does not pass by waiting (a wrong password, authority or port) is reported at once. A broker that
    does not answer is waited for, ten seconds.
    """
    connection = Connection.to(address)
    trouble = diagnose(connection)
    if trouble is not None and trouble.lasting:
        raise BrokerError(trouble.text)
    try:
        arguments = connection.arguments()
        return create_client(maker, **arguments, bootstrap_timeout_ms=_CONNECT_MS, **settings)
    except KafkaError as error:
        trouble = diagnose(connection)
        if trouble is not None:
            raise BrokerError(trouble.text) from error
        raise BrokerError(
            f"the broker at {connection.servers} answered too late ({type(error).__name__}): try again"
        ) from error


def admin(address: str | Connection) -> Any:
    """A client that creates and describes topics, groups and permissions."""
    return connect(KafkaAdminClient, address, request_timeout_ms=10_000)


@contextmanager
def asking(address: str | Connection) -> Iterator[Any]:
    """The same for the length of a block; BrokerError if the broker fails to answer."""
    client = admin(address)
    try:
        yield client
    except KafkaError as error:
        raise BrokerError(
            f"the broker at {Connection.to(address).servers} cannot be asked for its topics "
            f"({type(error).__name__}: {error})"
        ) from error
    finally:
        client.close()
