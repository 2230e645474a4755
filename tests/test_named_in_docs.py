"""Every metric, alert and pipeline key that README and docs name exists."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from unittest.mock import Mock

import pytest
from prometheus_client.registry import CollectorRegistry
from ruamel.yaml import YAML

from streamforest.forests.core import registry
from streamforest.observe.coarse_metrics import CoarseMetrics
from streamforest.observe.label_metrics import LateMetrics
from streamforest.observe.partitions import WorkerMetrics
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.runtime.config import schema
from streamforest.serve.metrics import ServeMetrics

TOP = Path(__file__).parents[1]
GUIDES = sorted(
    [TOP / "README.md", TOP / ".github" / "CONTRIBUTING.md", *(TOP / "docs").rglob("*.md")]
)
RULES = YAML(typ="safe").load(TOP / "docker" / "prometheus" / "rules.yml")["groups"]
_METRIC = re.compile(r"\b(?:[a-z_]+:)?streamforest_[a-z0-9_]+(?::[a-z0-9_]+)?\b")
_ALERT = re.compile(r"\bStreamforest[A-Z]\w+")
_IN_CODE = re.compile(r"`([^`\n]+)`")
_KEY = re.compile(r"(?<![\w./-])([a-z_]+(?:\.schedule)?)\.([a-z_]+)(?![\w(/]|\.[a-z])")
_TABLE = re.compile(r"^\[+([a-z_.]+)\]+", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENDS = {"toml", "jsonl", "csv", "parquet", "py"}
"""Of files, which look like a key."""


def metrics() -> set[str]:
    """The names under which Prometheus knows what we export, and those of the recording rules."""
    late = CollectorRegistry()
    LateMetrics(late)
    CoarseMetrics(late)
    known = {"streamforest_worker_partitions"}
    served = ServeMetrics(Mock(commit=0, behind_seconds=lambda: 0.0)).registry
    for found in (PipelineMetrics("p").registry, late, WorkerMetrics("p").registry, served):
        for family in found.collect():
            known |= {family.name, f"{family.name}_total"} if family.type == "counter" else set()
            known |= {family.name} | {sample.name for sample in family.samples}
            if family.type == "histogram":
                known |= {f"{family.name}{end}" for end in ("_bucket", "_count", "_sum")}
    return known | {
        rule["record"] for group in RULES for rule in group["rules"] if "record" in rule
    }


def keys() -> dict[str, set[str]]:
    """The keys of every table; those of [model] are the parameters of all forests."""
    known = {table: set(options) for table, options in schema.KEYS.items()}
    known["source"].add("schedule")
    parameters = {"kind", "factory"}
    for kind in registry.kinds():
        parameters |= set(signature(registry.get(kind).load()).parameters)
    return {**known, "model": parameters, "shadow": parameters | {"name"}, "taxonomy": set()}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.relative_to(TOP).as_posix())
def test_every_metric_and_alert_exists(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    named = {name for name in _METRIC.findall(text) if not name.endswith("_")}
    assert named - metrics() == set()
    alerts = {rule["alert"] for group in RULES for rule in group["rules"] if "alert" in rule}
    assert set(_ALERT.findall(text)) - alerts == set()


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.relative_to(TOP).as_posix())
def test_every_key_and_table_exists(guide: Path) -> None:
    text, known = guide.read_text(encoding="utf-8"), keys()
    wrong = []
    for code in _IN_CODE.findall(_FENCE.sub("", text)):
        for table, key in _KEY.findall(code):
            if table in known and key not in known[table] | ENDS:
                wrong.append(f"{table}.{key}")
    for language, block in _FENCE.findall(text):
        if language == "toml":
            wrong += [table for table in _TABLE.findall(block) if table not in known]
    assert wrong == []


def test_the_docs_name_many() -> None:
    """The patterns above find what they are meant to find."""
    text = "".join(guide.read_text(encoding="utf-8") for guide in GUIDES)
    found = {
        (table, key)
        for code in _IN_CODE.findall(_FENCE.sub("", text))
        for table, key in _KEY.findall(code)
    }
    assert {("kafka", "session_timeout_ms"), ("run", "folder"), ("model", "n_trees")} <= found
    assert len(set(_METRIC.findall(text))) > 15
