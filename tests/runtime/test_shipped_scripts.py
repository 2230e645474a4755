"""What stands in `pipelines/` and `docker/` is as the code is."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from streamforest.forests.core import registry
from streamforest.observe.requests import is_known
from streamforest.runtime.config import schema as schema
from streamforest.runtime.config.load import load_pipeline

TOP = Path(__file__).parents[2]
RUN_ELSEWHERE = {
    "avro_orders": "tests/integration/test_decoder.py",  # it needs a broker
    "species": "tests/runtime/test_shipped_pipelines.py",
}
SCRIPTS = sorted(
    path for path in (TOP / "pipelines").glob("*.py") if path.stem not in RUN_ELSEWHERE
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_and_scores(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # what it writes stays there
    runpy.run_path(str(script), run_name="__main__")
    scores = re.findall(r"([\d.]+)%", capsys.readouterr().out)
    assert float(scores[-1]) > 80


def test_the_image_compiles_the_kernels_of_every_kind() -> None:
    text = (TOP / "docker" / "Dockerfile").read_text(encoding="utf-8")
    (kinds,) = re.findall(r"for kind in ([a-z ]+);", text)
    assert kinds.split() == registry.kinds()


def test_every_service_is_confined() -> None:
    services = YAML(typ="safe").load(TOP / "docker" / "compose.yaml")["services"]
    assert {*services} == {"kafka", "replay", "consumer", "prometheus", "grafana"}
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        assert service.get("read_only", False) is (name != "kafka"), name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
    said = [
        (TOP / name).read_text(encoding="utf-8")
        for name in ("docs/containers.md", "docker/Dockerfile")
    ]
    for text in said:
        for flag in ("--cap-drop ALL", "--security-opt no-new-privileges", "--read-only"):
            assert flag in text
        assert f"--memory {services['consumer']['mem_limit']}" in text
        assert f"--pids-limit {services['consumer']['pids_limit']}" in text


def test_prometheus_may_ask_for_the_consumer_by_its_name() -> None:
    docker = TOP / "docker"
    consumer = YAML(typ="safe").load(docker / "compose.yaml")["services"]["consumer"]
    config = load_pipeline(docker / "pipeline.toml", consumer["environment"]).config
    scraped = YAML(typ="safe").load(docker / "prometheus" / "prometheus.yml")["scrape_configs"]
    for target in scraped[0]["static_configs"][0]["targets"]:
        assert is_known(target, config.metrics_allowed)
        assert not is_known(target, ())


def test_the_reference_tells_every_key_and_its_default() -> None:
    known = schema.KEYS
    told: dict[str, dict[str, str]] = {}
    text = (TOP / "pipelines" / "reference.toml").read_text(encoding="utf-8")
    for line in text.splitlines():
        if table := re.match(r"(?:# )?\[+([a-z_.]+)\]+", line):
            here = told.setdefault(table[1], {})
        elif key := re.match(r"(?:# )?([a-z_]+) = ", line):
            here[key[1]] = line
    own_keys = {"model", "shadow", "taxonomy"}
    assert {*told} == {*known, *own_keys} == {*schema.TABLES, "source.schedule"}
    for table_name, keys in known.items():
        assert list(told[table_name]) == list(keys), table_name
        for name, option in keys.items():
            line = told[table_name][name]
            if line.startswith("# "):  # else it is an example, without a default of its own
                value = line[2:].split(" = ", 1)[1]
                default = None if value.startswith("none") else tomllib.loads(f"v = {value}")["v"]
                assert default == option.default, f"{table_name}.{name}"
