"""An S3 server for tests, and a proxy before it that cuts connections off.

It is moto's, in this very process, or the one at the address in STREAMFOREST_TEST_S3 (http://host:port), with
the credentials of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator

import pytest

ELSEWHERE = "STREAMFOREST_TEST_S3"
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_VARIABLES = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


class ObjectServer:
    """A server with one bucket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.bucket = f"b-{uuid.uuid4().hex[:8]}"
        import boto3  # moto brings it

        boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(
            Bucket=self.bucket
        )

    def prefix(self) -> str:
        """The address of a folder that nobody else has."""
        return f"s3://{self.bucket}/runs/{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """Its address."""
    elsewhere = os.environ.get(ELSEWHERE)
    if elsewhere:
        yield elsewhere
        return
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def object_server(moto_server: str, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """A bucket, and the environment that leads to it."""
    given = {name: os.environ[name] for name in _CREDENTIALS if name in os.environ}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    kept = given if os.environ.get(ELSEWHERE) else {}
    for name, value in {**_VARIABLES, **kept}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT", moto_server)
    return ObjectServer(moto_server)


class CuttingProxy:
    """Passes everything on until `left` bytes have gone to the server, then closes both ends."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        self._target = host, int(port)
        self.left = 1 << 60
        self.once = False
        """Whether all goes well again after one cut."""
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._target)
                pair = client, server
                threading.Thread(target=self._up, args=pair, daemon=True).start()
                threading.Thread(target=self._down, args=pair, daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                part = data[: max(0, self.left)]
                self.left -= len(data)
                server.sendall(part)
                if self.left < 0:
                    self.cuts += 1
                    self.left = 1 << 60 if self.once else self.left
                    break
        _close(client, server)

    @staticmethod
    def _down(client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                client.sendall(data)
        _close(client, server)

    def close(self) -> None:
        """Accept nothing more."""
        self._listening.close()


def _close(*both: socket.socket) -> None:
    for one in both:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
