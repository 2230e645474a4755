"""The server's life: bind, load, answer, and on SIGTERM first say so, then finish what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from streamforest.errors import ConfigError
from streamforest.runtime.config.serving import ServeTable, refuse_open_door
from streamforest.serve.app import App
from streamforest.serve.protocol import BoundedProtocol

log = logging.getLogger(__name__)

_CONNECTIONS = 1_000  # at a time; beyond them a client gets 503
_KEEP_ALIVE = 30  # seconds
_FINISH = 30  # seconds for what is under way when the server stops
_SWITCH = 0.0002  # seconds after which a busy thread lets another one run: following must not delay answers


class _Server(uvicorn.Server):
    """uvicorn without its own handlers of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ours are there already."""
        yield


def bound_socket(settings: ServeTable) -> socket.socket:
    """The socket to listen on; ConfigError if the address cannot be had."""
    refuse_open_door(settings)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"serve.host = {settings.host!r}, serve.port = {settings.port}: {error.strerror}; choose "
            "another (port 0: any that is free)"
        ) from error
    return bound


def check_tls(settings: ServeTable) -> None:
    """ConfigError if a file of `serve.tls_…` cannot be used."""
    if settings.tls_certfile is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key = "serve.tls_certfile"
    try:
        context.load_cert_chain(settings.tls_certfile, settings.tls_keyfile)
        if settings.tls_client_cafile is not None:
            key = "serve.tls_client_cafile"
            context.load_verify_locations(settings.tls_client_cafile)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{key}: {reason}; give PEM files that belong together (serve.tls_certfile, "
            "serve.tls_keyfile, serve.tls_client_cafile)"
        ) from error


def serve(app: App, bound: socket.socket, ready: Callable[[str], None]) -> None:
    """Answer until SIGTERM or SIGINT; `ready` gets the address once there is one."""
    sys.setswitchinterval(_SWITCH)
    settings = app.settings
    tls: dict[str, Any] = {}
    if settings.tls_certfile is not None:
        tls = {"ssl_certfile": settings.tls_certfile, "ssl_keyfile": settings.tls_keyfile}
        if settings.tls_client_cafile is not None:
            tls |= {
                "ssl_ca_certs": str(settings.tls_client_cafile),
                "ssl_cert_reqs": ssl.CERT_REQUIRED,
            }
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=BoundedProtocol,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_FINISH,
        limit_concurrency=_CONNECTIONS,
        backlog=_CONNECTIONS,
        **tls,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_run(app, config, bound, ready))


async def _run(
    app: App, config: uvicorn.Config, bound: socket.socket, ready: Callable[[str], None]
) -> None:
    loop = asyncio.get_running_loop()
    asked: list[signal.Signals] = []
    stop = asyncio.Event()

    def note(number: signal.Signals) -> None:
        asked.append(number)
        stop.set()
        hurry.set() if len(asked) > 1 or number is signal.SIGINT else None

    hurry = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, note, number)
    app.start()
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    while not (server.started or serving.done()):
        await asyncio.sleep(0.01)
    host, port = bound.getsockname()[:2]
    scheme = "https" if config.is_ssl else "http"
    shown = f"[{host}]" if ":" in host else host
    ready(f"{scheme}://{shown}:{port}")
    await asyncio.to_thread(app.model.start)
    # all that was loaded, kernels included, stays: to look through it for garbage would take 90 ms of some
    # request, again and again
    gc.collect()
    gc.freeze()
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        app.draining = True
        if asked and app.settings.drain_seconds:
            log.info("%s: not ready any more; stopping soon", asked[0].name)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(hurry.wait(), app.settings.drain_seconds)
        server.should_exit = True
        await serving
    finally:
        waiting.cancel()
        app.close()
        await asyncio.to_thread(app.model.close)
