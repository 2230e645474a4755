"""Why a broker cannot be reached, in one line that says what to do.

To kafka-python a wrong password, a wrong authority and a wrong port are all "Unable to bootstrap". So the
listener is asked step by step, as a client would go: name, port, TLS, Kafka, login, and where the broker
then sends its clients. Where a step fails, the other way is tried as well: only a port that *answers* in
plain Kafka is called one.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from streamforest.io.kafka.auth.connection import Connection, Security
from streamforest.io.kafka.auth.probe import ILLEGAL_STATE, Wire
from streamforest.text import printable

log = logging.getLogger(__name__)

STEP = 4.0
"""Seconds that one step may take."""
WHOLE = 12.0
"""Seconds after which no further server is asked."""
QUIET = 2.0
"""Seconds after which it is said who is asked."""
_MOST_SERVERS = 5
_NAME_CODES = (62, 64)  # OpenSSL: host name mismatch, IP address mismatch
_EXPIRED_CODES = (9, 10)  # not yet valid, expired
_told: set[str] = set()  # servers whose asking was logged and that have not answered since


@dataclass(frozen=True)
class Trouble:
    """What is wrong. A lasting one is not mended by waiting: somebody must change a setting."""

    text: str
    lasting: bool = True


def diagnose(connection: Connection) -> Trouble | None:
    """What keeps clients from a broker; None if one of the servers is as it should be.

    The first server's trouble is told if all have one. Who is asked is logged after two seconds, and
    at once where the caller will go on waiting.
    """
    with _telling(connection.servers):
        trouble = _diagnose(connection)
    if trouble is None:
        _told.discard(connection.servers)
    elif not trouble.lasting:
        _tell(connection.servers)
    return trouble


def _diagnose(connection: Connection) -> Trouble | None:
    first: Trouble | None = None
    deadline = time.monotonic() + WHOLE
    servers = [part.strip() for part in connection.servers.split(",") if part.strip()]
    for server in servers[:_MOST_SERVERS]:
        trouble = _ask(*_place(server), connection.security)
        if trouble is None:
            return None
        first = first or trouble
        if time.monotonic() > deadline:
            break
    return first


def _place(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


@contextmanager
def _telling(servers: str) -> Iterator[None]:
    """Say who is being asked when it takes long: a silent command looks as if it hung."""
    timer = threading.Timer(QUIET, _tell, (servers,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell(servers: str) -> None:
    """Once, until these servers have answered."""
    if servers not in _told:
        _told.add(servers)
        log.warning("asking %s …", servers)


def _ask(host: str, port: int, security: Security, sent_from: str = "") -> Trouble | None:
    """All steps at one listener; then, once, at those it sends its clients to."""
    where = f"{printable(host, 100)}:{port}"
    if sent_from:
        where += f" (where the broker at {sent_from} sends its clients: advertised.listeners)"
    try:
        wire = Wire(host, port, STEP)
    except socket.gaierror:
        return Trouble(
            f"no broker at {where}: no such host; correct kafka.bootstrap_servers", lasting=False
        )
    except TimeoutError:
        return Trouble(
            f"no broker at {where}: no answer within {STEP:.0f} s; is it running, and does a "
            "firewall let you through?",
            lasting=False,
        )
    except OSError as error:
        return Trouble(
            f"no broker at {where}: {(error.strerror or str(error)).lower()}; start it "
            "(for trying out: streamforest broker start), or correct kafka.bootstrap_servers",
            lasting=False,
        )
    with closing(wire):
        trouble = _encrypt(wire, where, host, port, security) or _greet(
            wire, where, host, port, security
        )
        if trouble is None:
            trouble = _log_in(wire, where, security)
        if trouble is not None or sent_from:
            return trouble
        return _follow(wire, host, port, security, where)


def _encrypt(wire: Wire, where: str, host: str, port: int, security: Security) -> Trouble | None:
    if not security.tls:
        return None
    context = security.context()
    try:
        wire.encrypt(context)
    except ssl.SSLCertVerificationError as error:
        return Trouble(_certificate(error, where, host, port, security))
    except (OSError, ValueError) as error:  # SSLError is an OSError
        if _answers(host, port, lambda plain: plain.greet()):
            return Trouble(
                f"{where} does not speak TLS, it answers in plain text: use the port of its TLS "
                f"listener in kafka.bootstrap_servers, or kafka.security_protocol = "
                f"'{_without_tls(security)}'"
            )
        return Trouble(f"{where}: TLS failed: {_reason(error)}", lasting=False)
    return None


def _certificate(
    error: ssl.SSLCertVerificationError, where: str, host: str, port: int, security: Security
) -> str:
    if error.verify_code in _NAME_CODES:
        names = ", ".join(f"'{printable(name, 60)}'" for name in _names(host, port, security)[:5])
        return (
            f"{where}: its certificate is for {names or 'other names'}, not for '{host}': use a "
            "name of the certificate in kafka.bootstrap_servers and in the broker's advertised.listeners"
        )
    if error.verify_code in _EXPIRED_CODES:
        return (
            f"{where}: its certificate is {error.verify_message}: give the broker a new one (or set "
            "this machine's clock)"
        )
    if security.ca_file is None:
        return (
            f"{where}: its certificate is not signed by an authority this machine knows "
            f"({error.verify_message}): name the file of the one that signed it in kafka.ssl_cafile"
        )
    return (
        f"{where}: its certificate is not signed by kafka.ssl_cafile = '{security.ca_file}' "
        f"({error.verify_message}): give the file of the authority that did sign it"
    )


def _names(host: str, port: int, security: Security) -> list[str]:
    """The names in a certificate that is signed as it should be."""
    context = security.context()
    context.check_hostname = False
    found: list[str] = []

    def look(wire: Wire) -> None:
        wire.encrypt(context)
        found.extend(wire.names())

    _answers(host, port, look)
    return found


def _greet(wire: Wire, where: str, host: str, port: int, security: Security) -> Trouble | None:
    try:
        wire.greet()
    except ssl.SSLError as error:
        if security.cert_file is None:
            return Trouble(
                f"{where} asks for a client certificate ({_reason(error)}): give one with "
                "kafka.ssl_certfile and kafka.ssl_keyfile"
            )
        return Trouble(
            f"{where} refuses the certificate in kafka.ssl_certfile = '{security.cert_file}' "
            f"({_reason(error)}): use one signed by an authority that the broker trusts"
        )
    except OSError as error:
        if not security.tls and _answers(host, port, _shake):
            return Trouble(
                f"{where} speaks TLS, and kafka.security_protocol = '{security.protocol}' does not: use "
                f"'{'SASL_SSL' if security.sasl else 'SSL'}' with kafka.ssl_cafile (or the port of "
                "a plain listener)"
            )
        return Trouble(
            f"{where} is no Kafka broker, or one that is starting: {_reason(error)}", lasting=False
        )
    return None


def _log_in(wire: Wire, where: str, security: Security) -> Trouble | None:
    password = "" if security.password is None else security.password.read().reveal()
    try:
        offer = wire.offer(security.mechanism)
        if not security.sasl:
            if offer.code == ILLEGAL_STATE:
                return None
            return Trouble(
                f"{where} asks for a login, and kafka.security_protocol = '{security.protocol}' has none: "
                f"use '{'SASL_SSL' if security.tls else 'SASL_PLAINTEXT'}' with kafka.sasl_username and "
                "kafka.sasl_password_env or kafka.sasl_password_file"
            )
        if offer.code == ILLEGAL_STATE:
            return Trouble(
                f"{where} takes no login, and kafka.security_protocol = '{security.protocol}' has one: "
                "use the port of its SASL listener in kafka.bootstrap_servers, or kafka.security_protocol = "
                f"'{'SSL' if security.tls else 'PLAINTEXT'}'"
            )
        if offer.code:
            known = ", ".join(printable(name, 40) for name in offer.mechanisms[:10])
            return Trouble(
                f"{where} does not know kafka.sasl_mechanism = '{security.mechanism}'; it knows "
                f"{known or 'none'}"
            )
        assert security.user is not None
        refused = wire.log_in(security.mechanism, security.user, password)
    except (OSError, ValueError, KeyError) as error:
        return Trouble(f"{where}: the login had no proper answer: {_reason(error)}", lasting=False)
    if refused is None:
        return None
    named = "" if security.password is None else f" ({security.password.setting})"
    return Trouble(
        f"{where} refuses the login of user '{printable(security.user, 100)}' by "
        f"{security.mechanism}: wrong name or password{named}, or a user "
        f"without {security.mechanism} credentials"
    )


def _follow(wire: Wire, host: str, port: int, security: Security, where: str) -> Trouble | None:
    """Clients do not stay where they asked first: look at the nodes they are sent to as well."""
    try:
        nodes = wire.nodes()
    except (OSError, ssl.SSLError) as error:
        return Trouble(f"{where} does not say where its nodes are: {_reason(error)}", lasting=False)
    first: Trouble | None = None
    for node in nodes[:_MOST_SERVERS]:
        if node == (host, port):
            return None
        trouble = _ask(*node, security, sent_from=where)
        if trouble is None:
            return None
        first = first or trouble
    return first


def _answers(host: str, port: int, step: Callable[[Wire], None]) -> bool:
    """Whether a listener takes this step, on a connection of its own."""
    try:
        with closing(Wire(host, port, STEP)) as wire:
            step(wire)
    except (OSError, ValueError):
        return False
    return True


def _shake(wire: Wire) -> None:
    """A TLS handshake with whoever is there: only to find out whether it is TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    wire.encrypt(context)


def _without_tls(security: Security) -> str:
    return "SASL_PLAINTEXT" if security.sasl else "PLAINTEXT"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {STEP:.0f} s"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return printable(getattr(error, "strerror", None) or str(error) or type(error).__name__, 200)
