"""Writes `docs/reference/keys.md`: every key of a pipeline file; and the remedies in `docs/uses/consumer.md`.

    python tests/docs/keys_page.py

What a key accepts and its default come from `runtime/config/schema.py`, what it means from the comments of
`pipelines/reference.toml`. `test_keys.py` holds the page equal to what this writes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from streamforest.forests.core import registry
from streamforest.io.codec.remedies import REMEDIES
from streamforest.runtime.config import schema
from streamforest.runtime.config.load import DEFAULT_KIND
from streamforest.runtime.config.options import REQUIRED, Option

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "reference" / "keys.md"
CONSUMER = TOP / "docs" / "uses" / "consumer.md"
_TABLE = re.compile(r"(?:# )?\[+([a-z_.]+)\]+\s*(?:# (.*))?$")
_KEY = re.compile(r"(?:# )?([a-z_]+) = .*?(?:\s{2,}|\s)# (.*)$")
_MORE = re.compile(r"\s+# (.*)$")
_HEAD = """# Every pipeline key

<!-- Written by `python tests/docs/keys_page.py`. Change the code or pipelines/reference.toml instead. -->

A pipeline is a TOML file. Only `pipeline.name` and either a source or a broker are required. Paths are
relative to the folder in which the command is started; modules of `factory` and `decoder` are first looked
for beside the file.

A flag overrides the environment, and the environment overrides the file: `--set model.n_trees=50`,
`STREAMFOREST_MODEL__N_TREES=50`. `streamforest check pipeline.toml` reports every mistake at once. An
unknown key is an error that names the nearest one. `pipelines/reference.toml` has all of this as a file.
"""
_MODEL = """
`kind` is one of {kinds}; without it, the model is of kind `"{default}"`.
All other keys are parameters of the forest's constructor, such as `n_trees` and `seed`: see the
[Python API](api.md). `n_jobs`, `executor` and `n_actors` say where trees work, and change no result: see
[scaling](../scaling.md). Instead of a kind, `factory = "module:function"` names a function that returns a
River pipeline that ends in one of our forests.
"""
_SHADOW = """
The keys of `[model]`, and a `name`. There may be several, each with its own `[[shadow]]`.
"""

_TAXONOMY = """
Each key is a category, its value the list of its classes, such as `feline = ["lion", "tiger"]`: see
[coarse labels](../coarse-labels.md).
"""
_OTHER = {"model": _MODEL, "shadow": _SHADOW, "taxonomy": _TAXONOMY}
"""Tables whose keys are not fixed."""


def meanings() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """The comments of the reference: by table, and by table and key."""
    tables: dict[str, str] = {}
    keys: dict[tuple[str, str], str] = {}
    table, key = "", ""
    for line in (TOP / "pipelines" / "reference.toml").read_text(encoding="utf-8").splitlines():
        if found := _TABLE.match(line):
            table, key = found[1], ""
            tables[table] = found[2] or ""
        elif found := _KEY.match(line):
            key = found[1]
            keys[table, key] = found[2]
        elif key and (found := _MORE.match(line)):
            keys[table, key] += f" {found[1]}"
        else:
            key = ""
    return tables, keys


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "required"
    return "" if option.default is None else f"`{json.dumps(option.default)}`"


def _cell(text: str) -> str:
    text = text.replace("|", "\\|").replace("<", "&lt;")
    return re.sub(r"docs/([a-z-]+\.md)", r"[\1](../\1)", text)


def _sentence(text: str) -> str:
    text = _cell(text).replace("[kafka]", "`[kafka]`")
    return f"{text[0].upper()}{text[1:].rstrip('.')}.\n" if text else ""


def page() -> str:
    """The whole page."""
    tables, comments = meanings()
    parts = [_HEAD]
    names = [*schema.TABLES[:2], "source.schedule", *schema.TABLES[2:]]
    for name in names:
        head = f"[[{name}]]" if name == "shadow" else f"[{name}]"
        parts.append(f"\n## `{head}`\n\n{_sentence(tables.get(name, ''))}")
        if name in schema.KEYS:
            parts.append("\n| key | allowed | default | meaning |\n|---|---|---|---|\n")
            parts += [
                f"| `{key}` | {_cell(option.expected)} | {_default(option)} "
                f"| {_cell(comments.get((name, key), ''))} |\n"
                for key, option in schema.KEYS[name].items()
            ]
        else:
            kinds = ", ".join(f'`"{kind}"`' for kind in registry.kinds())
            parts.append(_OTHER[name].format(kinds=kinds, default=DEFAULT_KIND))
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))


def with_remedies(text: str) -> str:
    """The consumer's page with one row for each reason of a dead letter."""
    head = "| reason | what to do |\n|---|---|\n"
    before, found, after = text.partition(head)
    assert found
    rows = "".join(f"| `{reason}` | {_cell(remedy)} |\n" for reason, remedy in REMEDIES.items())
    return f"{before}{head}{rows}\n{after.partition(chr(10) * 2)[2]}"


if __name__ == "__main__":
    CONSUMER.write_text(with_remedies(CONSUMER.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
