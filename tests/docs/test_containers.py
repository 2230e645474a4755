"""The manifest for Kubernetes confines a consumer as image and compose file do."""

from __future__ import annotations

from docs.pages import TOP, fences
from ruamel.yaml import YAML


def test_the_manifest_is_as_the_compose_file() -> None:
    yaml = YAML(typ="safe")
    (text,) = [text for language, text in fences("docs/containers.md") if language == "yaml"]
    pod = yaml.load(text)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    compose = yaml.load(TOP / "docker" / "compose.yaml")["services"]["consumer"]
    image = (TOP / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert container["args"] == compose["command"]
    assert compose["mem_limit"] == "3g"
    assert container["resources"]["limits"]["memory"] == "3Gi"
    assert compose["tmpfs"] == ["/tmp:size=256m"]
    assert pod["volumes"][0]["emptyDir"]["sizeLimit"] == "256Mi"
    assert container["securityContext"]["capabilities"]["drop"] == compose["cap_drop"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is compose["read_only"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert compose["security_opt"] == ["no-new-privileges:true"]
    assert f"{pod['terminationGracePeriodSeconds']}s" == compose["stop_grace_period"]
    assert f"USER {pod['securityContext']['runAsUser']}\n" in image
    assert f"EXPOSE {container['ports'][0]['containerPort']}\n" in image
    assert "VOLUME /runs\n" in image
