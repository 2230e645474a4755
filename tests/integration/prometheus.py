"""A real Prometheus server for tests; where there is none, they are skipped and say what to install."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from integration.waiting import get

from streamforest.testing.broker.server import free_port
from streamforest.testing.plugin import missing

_SCRAPE = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: streamforest
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is missing: apt-get install prometheus")
        pytest.fail("unreachable")
    return found


class Prometheus:
    """A server in a folder that scrapes one consumer twice a second."""

    def __init__(self, folder: Path, port: int, rules: Path | None = None) -> None:
        self.port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(_SCRAPE.format(port=port, rules=rules or ""))
        self._command = [
            tool("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def __enter__(self) -> Prometheus:
        self._server = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._server.terminate()
        self._server.wait(20)

    def samples(self, query: str) -> list[dict[str, Any]]:
        """The vector that a query gives now; AssertionError if it is none."""
        code, text = get(f"http://127.0.0.1:{self.port}/api/v1/query?query={quote(query)}")
        assert code in (0, 200, 503), f"{query}: {text}"  # 0 and 503: it is starting
        result: list[dict[str, Any]] = json.loads(text)["data"]["result"] if code == 200 else []
        return result

    def value(self, query: str) -> float:
        """The first value of a vector; 0 if it is empty."""
        found = self.samples(query)
        return float(found[0]["value"][1]) if found else 0.0
