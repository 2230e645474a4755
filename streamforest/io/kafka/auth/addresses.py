"""Checks addresses of brokers as people write them: host:port, several with commas."""

from __future__ import annotations

import re

from streamforest.text import shown

_FORMAT = "expected host:port, several with commas"
_HOST = re.compile(r"\[[0-9A-Za-z:.%]+\]|[^\s:/\[\],]+")


def address_problem(servers: str) -> str | None:
    """What is wrong with a list of servers; None if nothing is.

    `Connection` refuses a login or a scheme in it, without repeating the value.

    >>> address_problem("a:9092, b:9093"), address_problem("[::1]:9092")
    (None, None)
    >>> address_problem("localhost")
    "expected host:port, several with commas; 'localhost' has no port, e.g. localhost:9092"
    >>> address_problem("h:99999")
    "expected host:port, several with commas; the port of 'h:99999' is not a number from 1 to 65535"
    """
    for part in servers.split(","):
        server = part.strip()
        host, colon, port = server.rpartition(":")
        if not server:
            return f"{_FORMAT}; there is nothing before or after a comma"
        if _HOST.fullmatch(server):
            return f"{_FORMAT}; {shown(server)} has no port, e.g. {server}:9092"
        if not colon or not _HOST.fullmatch(host):
            return f"{_FORMAT}; {shown(server)} has no valid host"
        if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65_535:
            return f"{_FORMAT}; the port of {shown(server)} is not a number from 1 to 65535"
    return None
