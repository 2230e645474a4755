"""The pytest plugin: fixtures for tests against a real broker.

    pytest_plugins = ["streamforest.testing.plugin"]

`kafka_broker` is one temporary broker for the session; `kafka_topic` creates topics with unique names;
`secure_kafka_broker` is another broker, with TLS, SASL and ACLs; `kafka_cluster` is three brokers, any of
which may be killed or made to hang. These two are there for one file of tests, since an idle broker takes
processor time too. Without Java or Maven the tests are skipped and say what to install; with
`CI=true` they fail.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from streamforest.io.kafka.clients import admin
from streamforest.io.kafka.topics import create_topic
from streamforest.testing.broker import download
from streamforest.testing.broker.cluster import Cluster
from streamforest.testing.broker.server import Broker
from streamforest.testing.secure import SecureBroker

TopicMaker = Callable[..., str]


def missing(what: str) -> None:
    """Skip the test, or fail it in CI, where everything must be installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A real broker on a free port of 127.0.0.1, removed at the end of the session."""
    reason = download.missing()
    if reason is not None:
        missing(reason)
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def secure_kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A real broker with TLS, SASL and ACLs; see `streamforest.testing.secure`."""
    reason = download.missing()
    if reason is None and find_spec("trustme") is None:
        reason = "certificates for a secured broker need trustme: pip install trustme"
    if reason is not None:
        missing(reason)
    with SecureBroker(tmp_path_factory.mktemp("secure")) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_cluster_of_module() -> Iterator[Cluster]:
    """The cluster of `kafka_cluster`, which every test gets whole."""
    reason = download.missing()
    if reason is not None:
        missing(reason)
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(kafka_cluster_of_module: Cluster) -> Cluster:
    """Three real brokers, whatever the test before did to them; see `streamforest.testing.broker.cluster`."""
    kafka_cluster_of_module.heal()
    return kafka_cluster_of_module


@pytest.fixture
def kafka_topic(kafka_broker: Broker) -> TopicMaker:
    """Creates topics: `kafka_topic("events", partitions=4)` returns a unique name."""

    def make(name: str = "topic", partitions: int = 1, **config: str) -> str:
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        client = admin(kafka_broker.servers)
        try:
            settings = {key.replace("_", "."): value for key, value in config.items()}
            create_topic(client, unique, partitions, settings)
        finally:
            client.close()
        return unique

    return make
