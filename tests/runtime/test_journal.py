"""What counts of a journal that is written without transactions."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from streamforest.runtime.checkpoint.journal import Entry, read_entries
from streamforest.runtime.recovery.replayer import after


def commits(told: list[tuple[int, int, int]], exactly_once: bool) -> list[tuple[int, int, int]]:
    """What is applied, from before the first event on, of (commit, first event, event after it)."""
    raw = [(place, msgspec.json.encode(Entry(*entry))) for place, entry in enumerate(told)]
    entries = after(read_entries(raw, exactly_once), 0, 3)
    return [(entry.commit, entry.first, entry.events) for entry in entries]


def test_a_record_that_arrives_after_later_commits_counts_for_nothing() -> None:
    told = [(0, 0, 5), (1, 5, 9), (0, 0, 5), (2, 9, 12), (1, 5, 9), (0, 0, 5), (3, 12, 13)]
    assert commits(told, False) == [(0, 0, 5), (1, 5, 9), (2, 9, 12), (3, 12, 13)]


def test_a_late_record_does_not_hide_that_a_commit_was_made_anew() -> None:
    """Commit 1 was written and not made; after a restart it took fewer events."""
    told = [(0, 0, 5), (1, 5, 9), (0, 0, 5), (1, 5, 8), (2, 8, 12)]
    assert commits(told, False) == [(0, 0, 5), (1, 5, 8), (2, 8, 12)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_last_of_several_with_one_number_counts(exactly_once: bool) -> None:
    told = [(0, 0, 5), (1, 5, 9), (1, 5, 8), (2, 8, 12)]
    assert commits(told, exactly_once) == [(0, 0, 5), (1, 5, 8), (2, 8, 12)]


def test_transactions_leave_nothing_out() -> None:
    """There a number that goes back is a journal that was tampered with: recovery must see it."""
    told = [(0, 0, 5), (1, 5, 9), (0, 0, 5), (2, 9, 12)]
    assert commits(told, True) == told


_FIRST_TO_READ = """
import importlib, sys, tempfile, threading
from pathlib import Path
import msgspec
from streamforest.observe.page import history_file, points, recent_classes
from streamforest.runtime.checkpoint import journal

kept = Path(tempfile.mkdtemp()) / "history.json"
kept.write_bytes(msgspec.json.encode(history_file.Kept()))
entry = msgspec.json.encode(journal.Entry(0, 0, 5, adopted="x", moved=[("t", 0, 1)]))
metadata = journal.CommitMetadata(0, 0, 5, "", "", 0).text()
sys.setswitchinterval(1e-6)

def read(together):
    for read in (
        lambda: journal.read_entry(0, entry),
        lambda: journal.read_commit_metadata(metadata),
        lambda: history_file.read(kept),
    ):
        together.wait()
        read()

for _ in range(100):
    for module in (points, recent_classes, history_file, journal):
        importlib.reload(module)
    together = threading.Barrier(4)
    threads = [threading.Thread(target=read, args=(together,)) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_threads_may_be_the_first_to_read_together() -> None:
    """Workers of several partitions start together. msgspec crashed where two met a new type at once."""
    done = subprocess.run([sys.executable, "-c", _FIRST_TO_READ], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
