"""`bench soak` on a small scale: a minute's worth of it in seconds, with a process joining and leaving."""

from __future__ import annotations

import pytest

from streamforest.bench.pipeline.soak import Settings, content, report, run
from streamforest.testing.broker import download
from streamforest.testing.plugin import missing


@pytest.mark.slow
def test_a_short_soak() -> None:
    reason = download.missing()
    if reason is not None:
        missing(reason)
    told: list[str] = []
    settings = Settings(minutes=0.5, rate=100, delay=1, every=8)
    tenths = run(settings, told.append)
    assert len(tenths) == len(told) == 10
    assert tenths[-1].changes >= 3
    assert sum(tenth.matched for tenth in tenths) > 1_000
    assert "memory at the end" in report(tenths)
    assert content(settings, tenths)["settings"]["rate"] == 100
