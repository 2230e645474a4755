"""Just enough of Kafka's protocol to find out what a listener expects of its clients.

One socket, one request at a time, nothing in the background.

It sends the requests of a login itself, because kafka-python's own clients do not report a refused one: the
broker answers and closes the connection, kafka-python 3.0 handles the closing first, and both its error
("Unable to bootstrap") and its log ("socket disconnected") are those of a broker that is away. That was so in
ten of ten attempts with a wrong password, by SCRAM and by PLAIN. What is computed in a login (SCRAM's proofs)
is kafka-python's.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.net.sasl import get_sasl_mechanism

from streamforest.io.kafka.compat.logins import use_current_logins

_METADATA, _HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 3, 17, 18, 36
_CLIENT = b"streamforest"
_MAX_ANSWER = 1 << 20
ILLEGAL_STATE = 34
"""The error code of a listener without logins."""


class NoAnswer(OSError):
    """The other side closed the connection, or answered something that is not Kafka."""


class Offer(NamedTuple):
    """A listener's answer to a request to log in: an error code, and the mechanisms it supports."""

    code: int
    mechanisms: list[str]


class Probe:
    """A connection to one listener; each step is a call."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.host = host
        self._socket: socket.socket = socket.create_connection((host, port), timeout)

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Use TLS from now on; ssl's own errors say what is wrong."""
        self._socket = context.wrap_socket(self._socket, server_hostname=self.host)

    def names(self) -> list[str]:
        """The names in the certificate of the other side, if it was checked."""
        assert isinstance(self._socket, ssl.SSLSocket)
        certificate = self._socket.getpeercert() or {}
        alternatives: tuple[tuple[str, str], ...] = certificate.get("subjectAltName", ())  # type: ignore[assignment]
        return [name for _, name in alternatives]

    def ask_versions(self) -> None:
        """Ask for API versions, which every Kafka listener answers before anything else."""
        self._ask(_API_VERSIONS, 0, b"")

    def offer(self, mechanism: str) -> Offer:
        """Request a login by a mechanism."""
        answer = Reader(self._ask(_HANDSHAKE, 1, _text(mechanism)))
        code = answer.number("h")
        return Offer(code, [answer.text() or "" for _ in range(answer.count())])

    def log_in(self, arguments: Mapping[str, Any]) -> str | None:
        """Log in after an offer; the broker's message if it refuses, else None."""
        use_current_logins()
        login = get_sasl_mechanism(arguments["sasl_mechanism"])(host=self.host, **arguments)
        while not login.is_done():
            token = login.auth_bytes()
            body = struct.pack(">i", len(token)) + token
            answer = Reader(self._ask(_AUTHENTICATE, 0, body))
            code, message = answer.number("h"), answer.text()
            if code:
                return message or f"error {code}"
            login.receive(answer.blob())
        return None

    def nodes(self) -> list[tuple[str, int]]:
        """Host and port of every node, as the broker advertises them to its clients."""
        answer = Reader(self._ask(_METADATA, 1, struct.pack(">i", 0)))
        nodes = []
        for _ in range(answer.count()):
            answer.number("i")
            nodes.append((answer.text() or "", answer.number("i")))
            answer.text()
        return nodes

    def _ask(self, api: int, version: int, body: bytes) -> bytes:
        head = struct.pack(">hhih", api, version, 7, len(_CLIENT)) + _CLIENT
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= _MAX_ANSWER:
            raise NoAnswer("the answer is not in Kafka's protocol")
        answer = self._receive(size)
        if answer[:4] != struct.pack(">i", 7):
            raise NoAnswer("the answer belongs to another request")
        return answer[4:]

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise NoAnswer("the connection was closed")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Reader:
    """The fields of an answer, one after the other; NoAnswer if it ends too soon."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._position = 0

    def number(self, format: str) -> int:
        """A big-endian integer of one of struct's formats."""
        size = struct.calcsize(">" + format)
        number: int = struct.unpack(">" + format, self._take(size))[0]
        return number

    def count(self) -> int:
        """The length of an array."""
        count = self.number("i")
        if not -1 <= count <= 10_000:
            raise NoAnswer("the answer is not in Kafka's protocol")
        return max(0, count)

    def text(self) -> str | None:
        """A string, or None for a null one."""
        size = self.number("h")
        return None if size < 0 else self._take(size).decode("utf-8", "replace")

    def blob(self) -> bytes:
        """A byte string."""
        return self._take(self.number("i"))

    def _take(self, size: int) -> bytes:
        field = self._raw[self._position : self._position + size]
        if size < 0 or len(field) < size:
            raise NoAnswer("the answer ends too soon")
        self._position += size
        return field


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw
