"""What counts of a journal that is written without transactions."""

from __future__ import annotations

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
