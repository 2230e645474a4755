"""A consumer that tells how long each of its batches took and how much memory it ever had.

    python timed_consumer.py PIPELINE TOLD

Reads to the end of the topic, then writes JSON: [offset, records, refused, seconds, seconds of the processor]
of each batch, and the largest resident memory in bytes.
"""

from __future__ import annotations

import gc
import json
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.processing.loop import Run

MOST = 6 << 30
"""Bytes at which it fails by itself, before the machine begins to swap."""


def main(pipeline: str, told: str) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MOST, MOST))
    times: list[tuple[int, int, int, float, float]] = []
    advance = Run._advance

    def timed(self: Run, state: Any, records: Any, publish: bool) -> None:
        dead = len(self.context.pending.dead_letters)
        begun, busy = time.perf_counter(), time.thread_time()
        advance(self, state, records, publish)
        seconds, busy = time.perf_counter() - begun, time.thread_time() - busy
        refused = len(self.context.pending.dead_letters) - dead
        times.append((records.records[0].offset, len(records), refused, seconds, busy))

    Run._advance = timed  # type: ignore[method-assign]
    with opened(load_pipeline(Path(pipeline)), drain=True) as run:
        gc.freeze()  # as `streamforest run` does
        assert run.consume() == "finished"
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    Path(told).write_text(json.dumps({"times": times, "memory": int(found[1]) * 1024}))


if __name__ == "__main__":
    main(*sys.argv[1:])
