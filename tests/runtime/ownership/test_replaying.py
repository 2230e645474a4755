"""Recovery: from the last commit and the journal to ownership.

Whatever happens, each event ends with one prediction, the same as in an undisturbed run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.owner_process import (
    Process,
    finish,
    grown,
)

from streamforest.io.log import (
    LogUnavailable,
)


def test_recovery_starts_again_when_the_log_goes_away(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    grown(owner)
    again = Process(owner.member.broker, tmp_path)
    again.member.unavailable = 3
    again.run.recover()
    assert again.member.asked == 4
    assert again.run.events == 40
    finish(again, undisturbed)


def test_recovery_does_not_start_again_for_ever(owner: Process, tmp_path: Path) -> None:
    grown(owner)
    again = Process(owner.member.broker, tmp_path)
    again.member.unavailable = 1_000
    with pytest.raises(LogUnavailable):
        again.run.recover()
    assert again.member.asked == 10
