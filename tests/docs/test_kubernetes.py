"""The manifests for Kubernetes: valid by its schemas, consistent among themselves, and as the image and the
compose file have it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from docs.pages import TOP
from ruamel.yaml import YAML

from streamforest.runtime.config.load import load_pipeline
from streamforest.serve.server import _FINISH

FOLDER = TOP / "docker" / "kubernetes"
_SPECIAL = ("monitoring.coreos.com", "kustomize.config.k8s.io")
"""Kinds that Kubernetes itself does not have."""


def manifests() -> list[dict[str, Any]]:
    yaml = YAML(typ="safe")
    files = sorted(FOLDER.glob("**/*.yaml"))
    return [one for file in files for one in yaml.load_all(file.read_text(encoding="utf-8"))]


def own() -> list[dict[str, Any]]:
    return [one for one in manifests() if not one["apiVersion"].startswith(_SPECIAL)]


def pods() -> dict[str, dict[str, Any]]:
    return {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in own()
        if one["kind"] == "Deployment"
    }


@pytest.mark.parametrize("version", ["1.30", "1.36"])
def test_every_manifest_is_valid(version: str) -> None:
    for one in own():
        kubernetes_validate.validate(one, version, strict=True)
    kinds = {one["kind"] for one in own()}
    assert {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"} == kinds


def test_every_file_is_part_of_a_kustomization() -> None:
    yaml = YAML(typ="safe")
    for file in FOLDER.glob("**/kustomization.yaml"):
        told = yaml.load(file)
        for name in told["resources"]:
            assert (file.parent / name).resolve().exists(), name
        for one in told.get("configMapGenerator", ()):
            assert all((file.parent / name).exists() for name in one["files"])
        beside = {path.name for path in file.parent.glob("*.yaml")} - {"kustomization.yaml"}
        assert beside <= set(told["resources"])


def test_selectors_ports_and_targets_name_what_there_is() -> None:
    templates = pods()
    assert set(templates) == {"orders-consumer", "orders-replica"}
    for one in own():
        spec = one["spec"]
        if one["kind"] == "HorizontalPodAutoscaler":
            assert spec["scaleTargetRef"]["name"] in templates
            continue
        wanted = spec["selector"].get("matchLabels", spec["selector"])
        found = [t for t in templates.values() if wanted.items() <= t["metadata"]["labels"].items()]
        assert len(found) == 1, one["metadata"]["name"]
        for port in spec.get("ports", ()):
            (container,) = found[0]["spec"]["containers"]
            assert port["targetPort"] in [p["name"] for p in container["ports"]]
    (monitor,) = [one for one in manifests() if one["kind"] == "PodMonitor"]
    ports = {
        p["name"] for t in templates.values() for c in t["spec"]["containers"] for p in c["ports"]
    }
    assert {one["port"] for one in monitor["spec"]["podMetricsEndpoints"]} == ports


def test_every_target_is_of_a_job_that_the_rules_know() -> None:
    (monitor,) = [one for one in manifests() if one["kind"] == "PodMonitor"]
    rules = (TOP / "docker" / "prometheus" / "rules.yml").read_text(encoding="utf-8")
    (known,) = set(re.findall(r'job=~"([^"]+)"', rules))
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        jobs = [r["replacement"] for r in endpoint["relabelings"] if r["targetLabel"] == "job"]
        assert len(jobs) == 1
        assert re.fullmatch(known, jobs[0]), "StreamforestNoOwner would never end"


def test_pods_are_confined_as_the_compose_file_confines_them() -> None:
    compose = YAML(typ="safe").load(TOP / "docker" / "compose.yaml")["services"]["consumer"]
    image = (TOP / "docker" / "Dockerfile").read_text(encoding="utf-8")
    for template in pods().values():
        pod = template["spec"]
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert security["capabilities"]["drop"] == compose["cap_drop"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert pod["automountServiceAccountToken"] is False
        assert f"USER {pod['securityContext']['runAsUser']}\n" in image
        assert container["resources"]["limits"]["memory"] == "3Gi"
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["path"] in ("/livez", "/readyz")
    assert pods()["orders-consumer"]["spec"]["containers"][0]["args"] == compose["command"]


def test_the_pipeline_is_one_and_its_stop_fits_into_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("STREAMFOREST_")]:
        monkeypatch.delenv(name)
    config = load_pipeline(Path(FOLDER / "consumers" / "pipeline.toml"), {}).config
    replica = pods()["orders-replica"]["spec"]
    (container,) = replica["containers"]
    assert container["ports"][0]["containerPort"] == config.serve.port
    grace = replica["terminationGracePeriodSeconds"]
    assert grace >= config.serve.drain_seconds + _FINISH
    assert config.run.snapshots is not None
    consumer = pods()["orders-consumer"]["spec"]["containers"][0]
    assert consumer["ports"][0]["containerPort"] == config.metrics_port


def test_the_rules_are_those_of_prometheus() -> None:
    (rules,) = [one for one in manifests() if one["kind"] == "PrometheusRule"]
    own_rules = YAML(typ="safe").load(TOP / "docker" / "prometheus" / "rules.yml")
    assert rules["spec"] == own_rules
