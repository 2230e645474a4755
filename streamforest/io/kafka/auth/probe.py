"""Just enough of Kafka's protocol to ask a broker how it wants to be spoken to.

One socket, one question at a time, nothing in the background. A failed login is answered and then the
connection closed: kafka-python, which reads both at once, reports only the closing.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import NamedTuple

from kafka.net.sasl import get_sasl_mechanism

_METADATA, _HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 3, 17, 18, 36
_CLIENT = b"streamforest"
_MAX_ANSWER = 1 << 20
ILLEGAL_STATE = 34
"""The error code of a listener without logins."""


class Silence(OSError):
    """The other side closed the connection, or answered something that is not Kafka."""


class Offer(NamedTuple):
    """What a listener says to the wish to log in: an error code, and the mechanisms it knows."""

    code: int
    mechanisms: list[str]


class Wire:
    """A connection to one listener, each step on request."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.host = host
        self._socket: socket.socket = socket.create_connection((host, port), timeout)

    def encrypt(self, context: ssl.SSLContext) -> None:
        """TLS from here on; ssl's own errors say what is wrong."""
        self._socket = context.wrap_socket(self._socket, server_hostname=self.host)

    def names(self) -> list[str]:
        """The names in the certificate of the other side, where it was checked."""
        assert isinstance(self._socket, ssl.SSLSocket)
        found = self._socket.getpeercert() or {}
        alternatives: tuple[tuple[str, str], ...] = found.get("subjectAltName", ())  # type: ignore[assignment]
        return [name for _, name in alternatives]

    def greet(self) -> None:
        """Ask for versions, which every Kafka listener answers before anything else."""
        self._ask(_API_VERSIONS, 0, b"")

    def offer(self, mechanism: str) -> Offer:
        """Ask to log in by a mechanism."""
        answer = Reader(self._ask(_HANDSHAKE, 1, _text(mechanism)))
        code = answer.number("h")
        return Offer(code, [answer.text() or "" for _ in range(answer.count())])

    def log_in(self, mechanism: str, user: str, password: str) -> str | None:
        """Log in after an offer; the broker's words if it refuses, None if it does not."""
        login = get_sasl_mechanism(mechanism)(
            host=self.host,
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
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
        """Where the broker sends its clients: host and port of every node."""
        answer = Reader(self._ask(_METADATA, 1, struct.pack(">i", 0)))
        found = []
        for _ in range(answer.count()):
            answer.number("i")
            found.append((answer.text() or "", answer.number("i")))
            answer.text()
        return found

    def _ask(self, api: int, version: int, body: bytes) -> bytes:
        head = struct.pack(">hhih", api, version, 7, len(_CLIENT)) + _CLIENT
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= _MAX_ANSWER:
            raise Silence("an answer that is not Kafka's")
        answer = self._receive(size)
        if answer[:4] != struct.pack(">i", 7):
            raise Silence("an answer to another question")
        return answer[4:]

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise Silence("the connection was closed")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Reader:
    """The fields of an answer, one after the other; Silence where it ends too soon."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def number(self, form: str) -> int:
        """A big-endian integer of a struct's form."""
        size = struct.calcsize(">" + form)
        found: int = struct.unpack(">" + form, self._take(size))[0]
        return found

    def count(self) -> int:
        """The length of an array."""
        found = self.number("i")
        if not -1 <= found <= 10_000:
            raise Silence("an answer that is not Kafka's")
        return max(0, found)

    def text(self) -> str | None:
        """A string, or none."""
        size = self.number("h")
        return None if size < 0 else self._take(size).decode("utf-8", "replace")

    def blob(self) -> bytes:
        """Bytes."""
        return self._take(self.number("i"))

    def _take(self, size: int) -> bytes:
        found = self._raw[self._at : self._at + size]
        if size < 0 or len(found) < size:
            raise Silence("an answer that ends too soon")
        self._at += size
        return found


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw
