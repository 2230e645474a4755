"""Flag over environment over file, and what is refused on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamforest.errors import ConfigError
from streamforest.runtime.config.layers import gather

FILE = '[pipeline]\nname = "p"\n[model]\nn_trees = 1\nseed = 1\ntau = 0.1\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "p.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_a_flag_wins_over_the_environment_and_that_over_the_file(path: Path) -> None:
    environ = {"STREAMFOREST_MODEL__N_TREES": "2", "STREAMFOREST_MODEL__SEED": "2"}
    settings = gather(path, environ, ["model.n_trees=3"])
    assert settings.tables["model"] == {"n_trees": 3, "seed": 2, "tau": 0.1}
    assert settings.where("model.n_trees") == " (from --set)"
    assert settings.where("model.seed") == " (from STREAMFOREST_MODEL__SEED)"
    assert settings.where("model.tau") == ""


def test_tables_are_made_where_the_file_has_none(path: Path) -> None:
    environ = {"STREAMFOREST_SOURCE__SCHEDULE__EVERY": "50"}
    tables = gather(path, environ, ["run.folder=/tmp/a b=c"]).tables
    assert tables["source"] == {"schedule": {"every": 50}}
    assert tables["run"] == {"folder": "/tmp/a b=c"}


def test_other_variables_are_left_alone(path: Path) -> None:
    environ = {"STREAMFOREST_DATA": "/data", "STREAMFOREST_QUIET": "1", "HOME": "/"}
    assert set(gather(path, environ).tables) == {"pipeline", "model"}


@pytest.mark.parametrize("flag", ["n_trees=3", "model.n_trees", "model.=3", ".n_trees=3", ""])
def test_a_flag_of_the_wrong_form_is_refused(path: Path, flag: str) -> None:
    with pytest.raises(ConfigError, match=r"table\.key=value"):
        gather(path, {}, [flag])


def test_a_value_is_no_table(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.seed is a value, not a table"):
        gather(path, {}, ["model.seed.low=3"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[pipeline\n", "not valid TOML.*line 1"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a = " + b"[" * 100_000, "not valid TOML"),
        (b"#" * 1_100_000, "larger than 1 MB"),
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"bad\.toml: {message}"):
        gather(path, {})


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        gather(tmp_path / "none.toml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        gather(tmp_path, {})


def test_a_mark_before_the_first_byte_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(b'\xef\xbb\xbf[model]\nkind = "online"\n')
    assert gather(path, {}).tables == {"model": {"kind": "online"}}


def test_a_path_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a.x00b.toml': not a valid file name"):
        gather(Path("a\0b.toml"), {})
