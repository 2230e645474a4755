"""Clients of a broker, made one way: what keeps one from connecting is said in one line, soon."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

from streamforest.errors import BrokerError
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.kafka.auth.diagnosis import diagnose

log = logging.getLogger(__name__)

_PATIENCE_MS = 10_000


def made(maker: Callable[..., Any], **settings: Any) -> Any:
    """A client of kafka-python's. One that cannot reach its broker leaves nothing behind.

    kafka-python starts a client's thread before it connects, and nobody else can end it: in a long
    outage each attempt would leave a thread and its files open.
    """
    begun: list[Any] = []

    def network(**configs: Any) -> Any:
        begun.append(KafkaNetClient(**configs))
        return begun[0]

    try:
        return maker(**settings, kafka_client=network)
    except BaseException:
        for client in begun:
            try:
                client.close()
            except Exception as error:  # what kept it from connecting is what counts
                log.info("a client did not close cleanly: %r", error)
        raise


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
        return made(maker, **arguments, bootstrap_timeout_ms=_PATIENCE_MS, **settings)
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
