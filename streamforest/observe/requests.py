"""What a client asks over HTTP: the head of a request, read, and its Host judged.

The Host is looked at because of browsers. A page of a stranger's may let its own name point to 127.0.0.1 and
then read from there what it likes; but it cannot help telling that name. An address, `localhost` and the
names that the operator has set are no such names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from streamforest.text import shown

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION = re.compile(r"HTTP/(\d)\.(\d)")
_MAX_FIELDS = 100


class Refused(Exception):
    """A request that is not answered as asked: a status, and a line that says why."""

    def __init__(
        self, status: HTTPStatus, why: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, dict(headers or {})


@dataclass(frozen=True)
class Request:
    """A request without a body; names of fields in small letters."""

    method: str
    path: str
    needs_host: bool
    fields: Mapping[str, tuple[str, ...]]

    def field(self, name: str) -> str:
        """The first value of a field; empty where there is none."""
        return self.fields.get(name, ("",))[0]


def parse_line(line: bytes) -> tuple[str, str, bool]:
    r"""Method, path without its query, and whether the version asks for a Host.

    >>> parse_line(b"GET /livez?verbose HTTP/1.1\r\n")
    ('GET', '/livez', True)
    """
    words = line.decode("latin-1").split()
    version = _VERSION.fullmatch(words[2]) if len(words) == 3 else None
    if version is None or not _TOKEN.fullmatch(words[0]):
        raise Refused(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.0 or 1.1")
    if version[1] != "1":
        raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "use HTTP/1.0 or 1.1")
    return words[0], words[1].partition("?")[0], version[2] != "0"


def parse(line: bytes, fields: Collection[bytes]) -> Request:
    """A request of its first line and its fields, each as it came."""
    method, path, needs_host = parse_line(line)
    if len(fields) > _MAX_FIELDS:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {_MAX_FIELDS} fields")
    found: dict[str, tuple[str, ...]] = {}
    for raw in fields:
        name, colon, value = raw.decode("latin-1").partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise Refused(HTTPStatus.BAD_REQUEST, "a line of the head is no field")
        found[name.lower()] = (*found.get(name.lower(), ()), value.strip())
    return Request(method, path, needs_host, found)


def check_host(request: Request, allowed: Collection[str]) -> None:
    """Refused unless the Host is an address, localhost or one of the allowed names."""
    hosts = request.fields.get("host", ())
    if len(hosts) > 1 or (not hosts and request.needs_host):
        raise Refused(HTTPStatus.BAD_REQUEST, "a request of HTTP/1.1 has one Host")
    if hosts and not is_known(hosts[0], allowed):
        raise Refused(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"Host: {shown(hosts[0])} is no name of this server; ask by address or localhost, or add "
            "the name to metrics.allowed_hosts",
        )


def is_known(host: str, allowed: Collection[str]) -> bool:
    """Whether a Host, maybe with a port, is an address, localhost or one of some names.

    >>> [is_known(host, {"consumer"}) for host in ("10.0.0.7:9108", "[::1]:9108", "Consumer.", "evil")]
    [True, True, True, False]
    """
    name, _, port = host.rpartition(":")
    if not name or not port.isdecimal():
        name = host
    if name.startswith("[") and name.endswith("]"):
        return _is_address(name[1:-1])
    plain = plain_name(name)
    return plain == "localhost" or plain in allowed or _is_address(plain)


def plain_name(name: str) -> str:
    """A name as it is compared: in small letters, without the dot of the root."""
    return name.lower().removesuffix(".")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
