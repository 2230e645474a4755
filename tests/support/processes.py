"""Processes below one of ours, and the addresses that they listen on, as Linux tells them."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from pathlib import Path

_LISTENING = "0A"


def descendants(pid: int) -> dict[int, str]:
    """The processes that a process has started, and those that these have: id and command."""
    parents, commands = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may just have ended
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            parents[int(folder.name)] = int(rest.split()[1])
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            commands[int(folder.name)] = line.strip() or name
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        parent = todo.pop()
        below = [child for child, of in parents.items() if of == parent]
        found |= {child: commands.get(child, "") for child in below}
        todo += below
    return found


def addresses(pids: list[int]) -> set[str]:
    """The addresses that some processes listen on."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(f"/proc/{pid}/fd/{entry}"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and f"socket:[{fields[9]}]" in sockets:
                found.add(_address(fields[1].partition(":")[0]))
    return found


def _address(text: str) -> str:
    words = [int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
