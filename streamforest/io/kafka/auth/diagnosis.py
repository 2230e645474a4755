"""Why a broker cannot be reached, in one line that says what to do.

To kafka-python a wrong password, a wrong authority and a wrong port are all "Unable to bootstrap". So the
listener is tried step by step, in a client's order: name, port, TLS, Kafka, login, and the addresses to which
the broker then sends its clients. If a step fails, its opposite is tried as well: a listener is said to speak
plain text only if it *answers* in plain text.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from streamforest.io.kafka.auth.connection import Connection, Security
from streamforest.io.kafka.auth.iam import CredentialsError
from streamforest.io.kafka.auth.probe import ILLEGAL_STATE, Probe
from streamforest.io.kafka.auth.tokens import TokenError
from streamforest.text import printable

log = logging.getLogger(__name__)

STEP = 4.0
"""Seconds that one step may take."""
WHOLE = 12.0
"""Seconds after which no further server is tried."""
QUIET = 2.0
"""Seconds after which a log line says which servers are asked."""
_MAX_SERVERS = 10
_NAME_CODES = (62, 64)  # OpenSSL: host name mismatch, IP address mismatch
_EXPIRED_CODES = (9, 10)  # not yet valid, expired
_USUAL_PORT = 9092
_announced: set[str] = set()  # servers that a log line has named and that have not answered since


@dataclass(frozen=True)
class Trouble:
    """What is wrong. A lasting one does not pass by waiting: somebody must change a setting."""

    text: str
    lasting: bool = True
    nobody: str = ""
    """Where nothing listens: why, in a few words."""


def diagnose(connection: Connection) -> Trouble | None:
    """What keeps clients from a broker; None as soon as one of the servers works.

    If none does, it is the first trouble that lasts, else that of all servers. A log line names the servers
    after two seconds.
    """
    with _announcing(connection.servers):
        trouble = _diagnose(connection)
    if trouble is None:
        _announced.discard(connection.servers)
    return trouble


def _diagnose(connection: Connection) -> Trouble | None:
    """Try all servers side by side: one that hangs must not keep us from those that work."""
    deadline = time.monotonic() + WHOLE
    servers = [part.strip() for part in connection.servers.split(",") if part.strip()]
    servers = list(dict.fromkeys(servers))[:_MAX_SERVERS]
    outcomes: SimpleQueue[tuple[str, Trouble | BaseException | None]] = SimpleQueue()

    def work(server: str) -> None:
        try:
            outcomes.put((server, _try(*_host_and_port(server), connection.security)))
        except BaseException as error:  # a file that cannot be read: told by the caller's thread
            outcomes.put((server, error))

    for server in servers:
        threading.Thread(target=work, args=(server,), daemon=True, name="diagnosis").start()
    found: dict[str, Trouble] = {}
    while len(found) < len(servers):
        try:
            server, outcome = outcomes.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        if outcome is None:
            return None
        if isinstance(outcome, BaseException):
            raise outcome
        found[server] = outcome
    return _summary({server: found[server] for server in servers if server in found}, servers)


def _summary(found: Mapping[str, Trouble], servers: Sequence[str]) -> Trouble:
    """The trouble of several servers in one line that names all of them."""
    for trouble in found.values():
        if trouble.lasting:
            return trouble
    silent = [server for server in servers if server not in found]
    if not found:
        return Trouble(
            f"no broker at {', '.join(silent)}: no answer within {WHOLE:.0f} s", lasting=False
        )
    first, *others = found.values()
    if not others and not silent:
        return first
    reasons = {server: trouble.nobody for server, trouble in found.items()}
    if all(reasons.values()) and not silent:
        same = len(set(reasons.values())) == 1
        places = [server if same else f"{server} ({why})" for server, why in reasons.items()]
        why = f": {first.nobody}" if same else ""
        remedy = _start_one(_host_and_port(servers[0])[1])
        return Trouble(f"no broker at {', '.join(places)}{why}; {remedy}", lasting=False)
    rest = ", ".join(server for server in servers if server != next(iter(found)))
    return Trouble(f"{first.text} (also tried without success: {rest})", lasting=False)


def _start_one(port: int) -> str:
    """What to do where nothing listens: the command with which a broker would listen there."""
    option = f" --port {port}" if port != _USUAL_PORT else ""
    return (
        f"start it (for trying out: streamforest broker start{option}), or correct "
        "kafka.bootstrap_servers"
    )


def _host_and_port(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


@contextmanager
def _announcing(servers: str) -> Iterator[None]:
    """Log which servers are asked if it takes long: a silent command looks as if it hung."""
    timer = threading.Timer(QUIET, _announce, (servers,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _announce(servers: str) -> None:
    """Log which servers are asked, once until they have answered."""
    if servers not in _announced:
        _announced.add(servers)
        log.warning("asking %s …", servers)


def _try(host: str, port: int, security: Security, sent_from: str = "") -> Trouble | None:
    """All steps at one listener; then, once, at those to which it sends its clients."""
    address = f"{printable(host, 100)}:{port}"
    if sent_from:
        address += f" (to which the broker at {sent_from} sends its clients: advertised.listeners)"
    try:
        probe = Probe(host, port, STEP)
    except socket.gaierror:
        return Trouble(
            f"no broker at {address}: no such host; correct kafka.bootstrap_servers",
            lasting=False,
            nobody="no such host",
        )
    except TimeoutError:
        return Trouble(
            f"no broker at {address}: no answer within {STEP:.0f} s; is it running, and does a "
            "firewall let you through?",
            lasting=False,
            nobody=f"no answer within {STEP:.0f} s",
        )
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return Trouble(
            f"no broker at {address}: {why}; {_start_one(port)}", lasting=False, nobody=why
        )
    with closing(probe):
        trouble = (
            _encrypt(probe, address, host, port, security)
            or _ask_versions(probe, address, host, port, security)
            or _log_in(probe, address, security)
        )
        if trouble is not None or sent_from:
            return trouble
        return _follow(probe, host, port, security, address)


def _encrypt(
    probe: Probe, address: str, host: str, port: int, security: Security
) -> Trouble | None:
    if not security.tls:
        return None
    context = security.context()
    try:
        probe.encrypt(context)
    except ssl.SSLCertVerificationError as error:
        return Trouble(_certificate(error, address, host, port, security))
    except (OSError, ValueError) as error:  # SSLError is an OSError
        if _answers(host, port, lambda plain: plain.ask_versions()):
            return Trouble(
                f"{address} does not speak TLS, it answers in plain text: use the port of its TLS "
                f"listener in kafka.bootstrap_servers, or kafka.security_protocol = "
                f"'{_without_tls(security)}'"
            )
        return Trouble(f"{address}: TLS failed: {_reason(error)}", lasting=False)
    return None


def _certificate(
    error: ssl.SSLCertVerificationError, address: str, host: str, port: int, security: Security
) -> str:
    if error.verify_code in _NAME_CODES:
        names = ", ".join(f"'{printable(name, 60)}'" for name in _names(host, port, security)[:5])
        return (
            f"{address}: its certificate is for {names or 'other names'}, not for '{host}': use a "
            "name of the certificate in kafka.bootstrap_servers and in the broker's advertised.listeners"
        )
    if error.verify_code in _EXPIRED_CODES:
        return (
            f"{address}: its certificate is {error.verify_message}: give the broker a new one (or set "
            "this machine's clock)"
        )
    if security.ca_file is None:
        return (
            f"{address}: its certificate is not signed by an authority this machine knows "
            f"({error.verify_message}): name the file of the one that signed it in kafka.ssl_cafile"
        )
    return (
        f"{address}: its certificate is not signed by kafka.ssl_cafile = '{security.ca_file}' "
        f"({error.verify_message}): give the file of the authority that did sign it"
    )


def _names(host: str, port: int, security: Security) -> list[str]:
    """The names in a certificate whose signature is right."""
    context = security.context()
    context.check_hostname = False
    names: list[str] = []

    def look(probe: Probe) -> None:
        probe.encrypt(context)
        names.extend(probe.names())

    _answers(host, port, look)
    return names


def _ask_versions(
    probe: Probe, address: str, host: str, port: int, security: Security
) -> Trouble | None:
    try:
        probe.ask_versions()
    except ssl.SSLError as error:
        if security.cert_file is None:
            return Trouble(
                f"{address} asks for a client certificate ({_reason(error)}): give one with "
                "kafka.ssl_certfile and kafka.ssl_keyfile"
            )
        return Trouble(
            f"{address} refuses the certificate in kafka.ssl_certfile = '{security.cert_file}' "
            f"({_reason(error)}): use one signed by an authority that the broker trusts"
        )
    except OSError as error:
        if not security.tls and _answers(host, port, _shake):
            return Trouble(
                f"{address} speaks TLS, and kafka.security_protocol = '{security.protocol}' does not: use "
                f"'{'SASL_SSL' if security.sasl else 'SSL'}' with kafka.ssl_cafile (or the port of "
                "a plain listener)"
            )
        return Trouble(
            f"{address} is not a Kafka broker, or it is still starting: {_reason(error)}; "
            "correct kafka.bootstrap_servers, or wait",
            lasting=False,
        )
    return None


def _log_in(probe: Probe, address: str, security: Security) -> Trouble | None:
    try:
        offer = probe.offer(security.mechanism)
        if not security.sasl:
            if offer.code == ILLEGAL_STATE:
                return None
            return Trouble(
                f"{address} asks for a login, and kafka.security_protocol = '{security.protocol}' has none: "
                f"use '{'SASL_SSL' if security.tls else 'SASL_PLAINTEXT'}' with kafka.sasl_mechanism, "
                "kafka.sasl_username and kafka.sasl_password_env or kafka.sasl_password_file"
            )
        if offer.code == ILLEGAL_STATE:
            return Trouble(
                f"{address} takes no login, and kafka.security_protocol = '{security.protocol}' has one: "
                "use the port of its SASL listener in kafka.bootstrap_servers, or kafka.security_protocol = "
                f"'{'SSL' if security.tls else 'PLAINTEXT'}'"
            )
        if offer.code:
            supported = ", ".join(printable(name, 40) for name in offer.mechanisms[:10])
            return Trouble(
                f"{address} does not support kafka.sasl_mechanism = '{security.mechanism}'; it supports "
                f"{supported or 'none'}"
            )
        arguments = {**security.login_arguments(), "security_protocol": security.protocol}
        refused = probe.log_in(arguments)
    except TokenError as error:
        return Trouble(str(error), error.lasting)
    except CredentialsError as error:
        return Trouble(str(error))
    except (OSError, ValueError, KeyError) as error:
        return Trouble(f"{address}: the login got no valid answer: {_reason(error)}", lasting=False)
    if refused is None:
        return None
    return Trouble(
        f"{address} refuses the login of {security.login} by {security.mechanism}: "
        f"{_login_remedy(security, refused)}"
    )


def _login_remedy(security: Security, said: str) -> str:
    """What is wrong with a login that the broker refuses."""
    if security.mechanism == "OAUTHBEARER":
        return (
            f"it got a token and does not accept it ({printable(said, 200)}): compare the issuer, audience "
            "and scope that the broker expects with kafka.sasl_oauthbearer_token_endpoint_url and "
            "kafka.sasl_oauthbearer_scope, and the clocks of the three machines"
        )
    if security.mechanism == "AWS_MSK_IAM":
        return (
            f"{printable(said, 200)}; the policy of this identity must allow kafka-cluster:Connect on the "
            "cluster, and this machine's clock must be right"
        )
    named = "" if security.password is None else f" ({security.password.setting})"
    return f"wrong name or password{named}, or a user without {security.mechanism} credentials"


def _follow(probe: Probe, host: str, port: int, security: Security, address: str) -> Trouble | None:
    """Clients move on from the server they asked first: try the nodes to which it sends them."""
    try:
        nodes = probe.nodes()
    except (OSError, ssl.SSLError) as error:
        return Trouble(
            f"{address} does not say where its nodes are: {_reason(error)}", lasting=False
        )
    if (host, port) in nodes:
        return None
    first: Trouble | None = None
    for node in nodes[:_MAX_SERVERS]:
        trouble = _try(*node, security, sent_from=address)
        if trouble is None:
            return None
        first = first or trouble
    return first


def _answers(host: str, port: int, step: Callable[[Probe], None]) -> bool:
    """Whether this step succeeds at a listener, on a new connection."""
    try:
        with closing(Probe(host, port, STEP)) as probe:
            step(probe)
    except (OSError, ValueError):
        return False
    return True


def _shake(probe: Probe) -> None:
    """A TLS handshake without any check, only to find out whether the listener speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    probe.encrypt(context)


def _without_tls(security: Security) -> str:
    return "SASL_PLAINTEXT" if security.sasl else "PLAINTEXT"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {STEP:.0f} s"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return printable(getattr(error, "strerror", None) or str(error) or type(error).__name__, 200)
