"""Keeps the messages of a topic as a file, one line a message."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.tools.dlq import committed_records
from streamforest.private_files import FILE_MODE, make_folder, recreate


def keep(connection: str | Connection, topic: str, path: Path, mode: int = FILE_MODE) -> int:
    """Write the committed messages of a topic to a file, partition by partition; how many lines it has.

    A message that is an array, as batched predictions are, becomes a line for each of its items. The file
    is replaced as a whole, once all of it is there.
    """
    make_folder(path.parent, mode)
    part = path.with_name(f"{path.name}.part")
    count = 0
    with recreate(part, mode) as file:
        for _, record in committed_records(connection, topic):
            lines = _lines(record.value or b"")
            count += len(lines)
            file.writelines(line + b"\n" for line in lines)
    os.replace(part, path)
    return count


def _lines(value: bytes) -> list[bytes]:
    if not value.startswith(b"["):
        return [value]
    return [bytes(item) for item in msgspec.json.decode(value, type=list[msgspec.Raw])]
