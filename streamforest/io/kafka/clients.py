"""Clients of a broker, made one way: what keeps one from connecting is said in one line, soon."""

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

_PATIENCE_MS = 10_000


def connect(maker: Callable[..., Any], where: str | Connection, **settings: Any) -> Any:
    """A client of kafka-python's; BrokerError says why there is none.

    What no waiting mends (a wrong password, authority or port) is reported at once. A broker that is
    not there yet is waited for, ten seconds.
    """
    connection = Connection.to(where)
    trouble = diagnose(connection)
    if trouble is not None and trouble.lasting:
        raise BrokerError(trouble.text)
    try:
        arguments = connection.arguments()
        return create_client(maker, **arguments, bootstrap_timeout_ms=_PATIENCE_MS, **settings)
    except KafkaError as error:
        trouble = diagnose(connection)
        if trouble is not None:
            raise BrokerError(trouble.text) from error
        raise BrokerError(
            f"the broker at {connection.servers} answered too late ({type(error).__name__}): try again"
        ) from error


def admin(where: str | Connection) -> Any:
    """A client for looking after topics."""
    return connect(KafkaAdminClient, where, request_timeout_ms=10_000)


@contextmanager
def asking(where: str | Connection) -> Iterator[Any]:
    """A client for looking after topics; BrokerError if the broker goes away while it is asked."""
    client = admin(where)
    try:
        yield client
    except KafkaError as error:
        raise BrokerError(
            f"the broker at {Connection.to(where).servers} cannot be asked for its topics "
            f"({type(error).__name__}: {error})"
        ) from error
    finally:
        client.close()
