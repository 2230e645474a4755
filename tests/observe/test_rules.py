"""The shipped alert rules and dashboards: sound by themselves, without a consumer.

`tests/integration/test_alerts.py` holds them against a real one.
"""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from integration.prometheus import tool
from ruamel.yaml import YAML

TOP = Path(__file__).parents[2]
PROMETHEUS = TOP / "docker" / "prometheus"
GRAFANA = TOP / "docker" / "grafana"
BOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))


def rules(kind: str) -> list[dict[str, Any]]:
    groups = YAML(typ="safe").load(PROMETHEUS / "rules.yml")["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def test_promtool_accepts_the_configuration_and_its_rules() -> None:
    command = [tool("promtool"), "check", "config", "--lint-fatal", "prometheus.yml"]
    done = subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_and_clears_as_it_is_shipped() -> None:
    cases = Path(__file__).with_name("alerts_test.yml")
    done = subprocess.run(
        [tool("promtool"), "test", "rules", cases.name],
        cwd=cases.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, list[bool]] = {}
    for case in YAML(typ="safe").load(cases)["tests"]:
        for asked in case["alert_rule_test"]:
            told.setdefault(asked["alertname"], []).append(bool(asked["exp_alerts"]))
    assert set(told) == {rule["alert"] for rule in rules("alert")}
    for alert, fired in told.items():
        assert fired[0] is False, alert
        assert fired[fired.index(True) + 1] is False, alert


def test_every_alert_says_how_bad_it_is_what_it_is_and_what_to_do() -> None:
    alerts = rules("alert")
    assert len(alerts) == 7
    for rule in alerts:
        name, notes = rule["alert"], rule["annotations"]
        assert name.startswith("Streamforest")
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["for"]
        assert notes["summary"].endswith(".")
        assert "{{" not in notes["summary"], "a summary is the same for all alerts of a kind"
        assert "{{" in notes["description"]
        assert notes["runbook_url"] == f"docs/runbooks/{name}.md"
        runbook = (TOP / notes["runbook_url"]).read_text(encoding="utf-8")
        assert runbook.startswith(f"# {name}\n")
        for heading in ("## What it means", "## What to look at", "## What to do"):
            assert heading in runbook, name
    written = {path.stem for path in (TOP / "docs" / "runbooks").glob("*.md")}
    assert written == {rule["alert"] for rule in alerts} | {"README"}


def test_recording_rules_are_named_by_level_metric_and_operation() -> None:
    for rule in rules("record"):
        assert re.fullmatch(r"[a-z_]+:streamforest_[a-z_]+:[a-z_]+\d+[mhd]", rule["record"])


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_complete(path: Path) -> None:
    board = json.loads(path.read_text(encoding="utf-8"))
    assert board["uid"] == f"streamforest-{path.stem}"
    assert board["title"]
    variables = {one["name"] for one in board["templating"]["list"]}
    assert variables == {"datasource", "job"}
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            asked = set(re.findall(r"\$(\w+)", target["expr"]))
            assert asked <= {"job", "__rate_interval"}, panel["title"]
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, f"panels overlap at {one} and {other}"


def test_provisioning_names_what_compose_mounts() -> None:
    yaml = YAML(typ="safe")
    service = yaml.load(TOP / "docker" / "compose.yaml")["services"]["grafana"]
    mounts = dict(volume.split(":")[:2] for volume in service["volumes"])
    (provider,) = yaml.load(GRAFANA / "provisioning" / "dashboards" / "streamforest.yaml")[
        "providers"
    ]
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    (source,) = yaml.load(GRAFANA / "provisioning" / "datasources" / "prometheus.yaml")[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (GRAFANA / "dashboards" / Path(home).name).is_file()
    scraped = yaml.load(PROMETHEUS / "prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
