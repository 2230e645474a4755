"""The page of all keys is as the code is, and every key that a page names exists."""

from __future__ import annotations

import re
import tomllib

import pytest
from docs.keys_page import CONSUMER, PAGE, meanings, page, with_remedies
from docs.pages import PAGES, TOP, fences

from streamforest.forests.core import registry
from streamforest.runtime.config import schema

_DOTTED = re.compile(rf"`((?:{'|'.join(schema.TABLES)})(?:\.schedule)?)\.([a-z_]+)(?: = [^`]*)?`")
_TABLE = re.compile(r"`\[+([a-z_.]+)\]+`")


def test_the_page_is_what_the_script_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/docs/keys_page.py"


def test_every_key_has_a_meaning() -> None:
    told = meanings()[1]
    known = [(table, key) for table, keys in schema.KEYS.items() for key in keys]
    assert [key for key in known if not told.get(key)] == []


def test_the_consumer_s_page_tells_the_remedy_for_every_reason() -> None:
    text = CONSUMER.read_text(encoding="utf-8")
    assert text == with_remedies(text), "run: python tests/docs/keys_page.py"


def test_pages_tell_of_every_kind() -> None:
    models = (TOP / "docs" / "models.md").read_text(encoding="utf-8")
    api = (TOP / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for forest in registry.entries():
        assert f"| `{forest.class_name}` | `{forest.kind}` |" in models
        assert f".{forest.class_name}\n" in api


@pytest.mark.parametrize("name", PAGES)
def test_every_key_that_a_page_names_exists(name: str) -> None:
    text = (TOP / name).read_text(encoding="utf-8")
    unknown = [
        f"{table}.{key}"
        for table, key in _DOTTED.findall(text)
        if table in schema.KEYS and key not in (*schema.KEYS[table], "jsonl")
    ]
    unknown += [t for t in _TABLE.findall(text) if t not in (*schema.TABLES, "source.schedule")]
    assert not unknown


def _tables(name: str) -> list[str]:
    return [text for language, text in fences(name) if language == "toml"]


@pytest.mark.parametrize("name", [name for name in PAGES if _tables(name)])
def test_every_key_and_value_of_a_pipeline_on_a_page_is_accepted(name: str) -> None:
    """The files and brokers that it names need not be there."""
    for text in _tables(name):
        for table, keys in tomllib.loads(text).items():
            assert table in schema.TABLES
            if table in ("model", "shadow"):
                for model in keys if isinstance(keys, list) else [keys]:
                    assert "factory" in model or model["kind"] in registry.kinds()
                continue
            if table == "taxonomy":
                assert all(isinstance(classes, list) for classes in keys.values())
                continue
            for key, value in keys.items():
                if (table, key) != ("source", "schedule"):
                    assert schema.KEYS[table][key].accepts(value), f"{table}.{key} = {value!r}"
