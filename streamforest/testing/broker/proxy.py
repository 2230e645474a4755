"""A proxy between clients and a node that can cut the network: nothing passes, and nobody is told."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_HOST = "127.0.0.1"
_PART = 1 << 16


class Proxy:
    """Forwards every connection to `port` to another one on this machine."""

    def __init__(self, port: int, to: int) -> None:
        self.servers = f"{_HOST}:{port}"
        self._to = to
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((_HOST, port))
        threading.Thread(target=self._accept, daemon=True, name="proxy").start()

    def cut(self) -> None:
        """Let nothing through from now on; connections stay as they are."""
        self._open.clear()

    def mend(self) -> None:
        """Let everything through again. What was sent meanwhile arrives late, as with TCP."""
        self._open.set()

    def close(self) -> None:
        """End all connections."""
        self._open.set()
        self._listener.close()
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            server = socket.create_connection((_HOST, self._to), 5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        self._sockets += [client, server]
        back = threading.Thread(target=self._forward, args=(server, client), daemon=True)
        back.start()
        self._forward(client, server)

    def _forward(self, sender: socket.socket, receiver: socket.socket) -> None:
        with suppress(OSError):
            while part := sender.recv(_PART):
                self._open.wait()
                receiver.sendall(part)
        self._open.wait()
        for end in (sender, receiver):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
