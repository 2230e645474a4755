"""Shards without Ray: they live in this process, get copies of what they are sent, and may be killed."""

from __future__ import annotations

import pickle
from typing import Any

from streamforest.forests.sharded.driver import Lost
from streamforest.forests.sharded.shard import Shard


def _sent(what: Any) -> Any:
    """A copy whose arrays cannot be written to: that is how Ray hands them over."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(what, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])


class LocalCluster:
    """Where they live. A killed shard answers nothing more; `dies_at` has them die by themselves."""

    def __init__(self) -> None:
        self.alive: dict[int, Shard] = {}
        self.created = 0
        self.asked = 0
        self.kept: list[bytes] = []
        self.dies_at: dict[int, bool] = {}
        """By the number of a question: whether the shard dies after it has done what was asked, or before."""

    def put(self, data: bytes) -> int:
        self.kept.append(data)
        return len(self.kept) - 1

    def share(self, step: Any) -> Any:
        return step

    def create(self, address: int, *arguments: Any) -> int:
        self.created += 1
        self.alive[self.created] = Shard(self.kept[address], *arguments)
        return self.created

    def ask(self, shard: int, method: str, *arguments: Any) -> Any:
        number, self.asked = self.asked, self.asked + 1
        dies = self.dies_at.get(number)
        if dies is False:
            self.kill(shard)
        if shard not in self.alive:
            return Lost("killed")
        said = getattr(self.alive[shard], method)(*_sent(arguments))
        if dies:
            self.kill(shard)
            return Lost("killed")
        return said

    def answer(self, asked: Any, starting: bool = False) -> Any:
        if isinstance(asked, Lost):
            raise asked
        return _sent(asked)

    def end(self, shard: int) -> None:
        self.alive.pop(shard, None)

    def kill(self, shard: int) -> None:
        self.alive.pop(shard, None)
