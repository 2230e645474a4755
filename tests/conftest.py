"""Shared by all tests; and how the whole suite is spread over workers.

`python -m pytest` alone runs everything, on three workers: half of the time tests wait for a broker. Tests
that are picked by hand, by path, mark or debugger, run in one process and print as they go.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# not the user's own cache: a test run leaves nothing behind there. The package reads it when it is
# loaded, so nothing of it is imported above
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / "streamforest-tests"))

pytest_plugins = ["streamforest.testing.plugin"]

_COMPILE = """
import sys
from streamforest.forests.core import registry
registry.get(sys.argv[1]).warm_up()
"""
_WORKERS = 3
_TOGETHER = ("bench", "docs", "integration", "runtime")
"""Folders whose tests stay together, file by file."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many workers `-n auto` means; 0 is this very process."""
    option = config.option
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    by_hand = option.markexpr != "not slow" or option.keyword or option.usepdb
    by_hand = by_hand or option.capture == "no" or option.collectonly
    return min(_WORKERS, 1 + (os.cpu_count() or 1)) if whole and not by_hand else 0


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """What all workers need is made once, before they start: compiled kernels, and Kafka's jars."""
    from streamforest.errors import BrokerError
    from streamforest.forests.core import registry
    from streamforest.testing.broker import download

    with ThreadPoolExecutor(min(_WORKERS, os.cpu_count() or 1)) as pool:
        for kind in ("ncm", *registry.kinds()):  # the one that takes longest first
            pool.submit(subprocess.run, [sys.executable, "-c", _COMPILE, kind])
        if download.missing() is None:
            try:
                download.jars()
            except BrokerError as error:
                print(error, file=sys.stderr)  # the tests that need them fail and say so again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What stays together comes first: the other tests then fill the gaps one by one."""
    items.sort(key=lambda item: item.path.parent.name not in _TOGETHER)


@pytest.fixture(autouse=True)
def _no_strangers_in_the_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test without a broker does not see what a client of an earlier test still logs in its own thread."""
    if "caplog" not in request.fixturenames or "integration" in request.path.parts:
        yield
        return
    handler = request.getfixturevalue("caplog").handler  # the same for all tests of a worker
    handler.addFilter(_no_client_of_another_test)
    yield
    handler.removeFilter(_no_client_of_another_test)


def _no_client_of_another_test(record: logging.LogRecord) -> bool:
    return not record.name.startswith("kafka.") or record.thread == threading.main_thread().ident


class FileByFile(LoadScopeScheduling):
    """Tests that share a broker, a server of processes or a finished run stay on one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if Path(file).parent.name in _TOGETHER else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    """How tests are handed to the workers."""
    return FileByFile(config, log)
