"""Functions named in a pipeline file come from beside it, and nobody else sees them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import river

from streamforest.errors import ConfigError
from streamforest.runtime.config.imports import find_decoder, find_function
from streamforest.runtime.config.load import load_pipeline

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes files below a folder; the folder."""

    def write(folder: str = ".", **files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / folder / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path / folder

    return write


@pytest.fixture(autouse=True)
def nothing_changes() -> Any:
    """`sys.path` and the modules of everybody else stay."""
    path, known = list(sys.path), dict(sys.modules)
    yield
    assert sys.path == path
    assert sys.modules["json"] is known["json"] is json
    assert sys.modules["river"] is known["river"] is river
    assert "helper" not in sys.modules


@pytest.mark.parametrize("name", ["json", "river", "numpy", "email", "this", "streamforest"])
def test_a_module_beside_the_file_wins_and_shadows_nobody(write: Write, name: str) -> None:
    before = sys.modules.get(name)
    folder = write(**{name: f"import {name} as usual\ndef f():\n    return usual.__file__\n"})
    found = find_function("factory", f"{name}:f", folder)()
    assert found != str(folder / f"{name}.py"), "what it imports is what everybody imports"
    assert before is None or sys.modules[name] is before
    assert getattr(__import__(name), "f", None) is None


def test_what_is_not_there_is_found_as_python_finds_it(tmp_path: Path) -> None:
    assert find_function("factory", "json:dumps", tmp_path) is json.dumps
    (tmp_path / "json").mkdir()  # a folder is no module
    assert find_function("factory", "json:dumps", tmp_path) is json.dumps
    assert find_function("factory", "xml.sax.saxutils:escape", tmp_path)("<") == "&lt;"


def test_modules_of_one_name_are_not_mixed_up(write: Write) -> None:
    for place in ("a", "b"):
        write(
            place,
            orders=f"import helper\nTELL = '{place}'\ndef f():\n    return TELL + helper.TELL\n",
            helper=f"TELL = '{place}'\n",
        )
    a = find_function("factory", "orders:f", write("a"))
    b = find_function("factory", "orders:f", write("b"))
    assert (a(), b()) == ("aa", "bb")
    assert find_function("decoder", "orders:f", write("a")) is a, "a module is loaded once"


def test_helpers_are_found_beside_it_whenever_they_are_asked_for(write: Write) -> None:
    folder = write(
        first=(
            "import helper\nfrom helper import one\nimport parts.inner, parts.inner as inner\n"
            "from parts import inner as again\nfrom . import helper as relative\n"
            "assert relative is helper and again is inner is parts.inner\n"
            "def f():\n    import late\n    return one() + inner.two() + late.three()\n"
        ),
        helper="import other\ndef one():\n    return other.ONE\n",
        other="ONE = 1\n",
        late="from helper import one\ndef three():\n    return 2 + one()\n",
        parts____init__="",
        parts__inner="from . import deeper\ndef two():\n    return deeper.TWO\n",
        parts__deeper="TWO = 2\n",
    )
    call = find_function("factory", "first:f", folder)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(60)
    assert found == [6]
    assert find_function("factory", "parts.inner:two", folder)() == 2


def test_a_helper_named_like_pythons_own_is_asked_for_by_a_dot(write: Write) -> None:
    folder = write(
        mine="import json\nfrom . import json as own\ndef f():\n    return json, own.HERE\n",
        json="HERE = 1\n",
    )
    usual, here = find_function("factory", "mine:f", folder)()
    assert (usual, here) == (json, 1)


def test_a_module_in_a_folder_without_init(write: Write) -> None:
    folder = write(inside__orders="def f():\n    return 7\n")
    assert find_function("factory", "inside.orders:f", folder)() == 7


def test_what_such_a_module_makes_can_be_pickled_and_typed(write: Write) -> None:
    folder = write(
        made=(
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "from typing import get_type_hints\n"
            "@dataclass\nclass Order:\n    amount: int\n"
            "def f(amount):\n    assert get_type_hints(Order) == {'amount': int}\n"
            "    return Order(amount)\n"
        )
    )
    call = find_function("factory", "made:f", folder)
    assert pickle.loads(pickle.dumps(call)) is call
    assert pickle.loads(pickle.dumps(call(3))) == call(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 7\n", "AttributeError: module 'bad' has no attribute 'f'"),
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("def f(:\n", "SyntaxError"),
        ("\0", "null bytes"),
        ("raise ValueError('a\\x1b[31mb\\nc')\n", r"ValueError: a\\x1b\[31mb\\nc"),
        ("from helper import nothing\n", "cannot import name 'nothing' from 'helper'"),
        ("import helper.sub\n", "No module named 'helper.sub'; 'helper' is not a package"),
        ("from .. import x\n", "ImportError: attempted relative import beyond top-level package"),
    ],
)
def test_what_is_wrong_is_one_line(write: Write, text: str, message: str) -> None:
    folder = write(bad=text, helper="")
    for _ in range(2):  # a module that failed is no module
        with pytest.raises(ConfigError, match=message) as caught:
            find_decoder("bad:f", folder)
        told = str(caught.value)
        assert told.startswith("decoder = 'bad:f': ")
        assert "streamforest_beside" not in told
        assert told.isprintable()


@pytest.mark.parametrize("spec", ["..up:f", "a..b:f", "./x:f", "../x:f", "/etc/x:f", "x\0y:f"])
def test_names_that_are_none(tmp_path: Path, spec: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "x.py").write_text("def f(): pass\n")
    with pytest.raises(ConfigError, match="factory = "):
        find_function("factory", spec, tmp_path / "in")


def test_a_pipeline_is_loaded_with_its_own(write: Write) -> None:
    folder = write(
        river=(
            "from river import preprocessing\nfrom streamforest import ConsistentForestClassifier\n"
            "def model():\n    return preprocessing.StandardScaler() | ConsistentForestClassifier()\n"
        )
    )
    path = folder / "p.toml"
    path.write_text(
        '[pipeline]\nname = "p"\n[source]\ndataset = "digits"\nmax_events = 10\n'
        '[model]\nfactory = "river:model"\n'
    )
    assert list(load_pipeline(path).models) == ["main"]


def test_a_process_of_its_own_is_as_it_was(write: Write) -> None:
    folder = write(json="def dumps(x): raise RuntimeError\ndef f(message): pass\n")
    code = (
        "import sys; before = list(sys.path)\n"
        "from pathlib import Path\n"
        "from streamforest.runtime.config.imports import find_decoder\n"
        f"find_decoder('json:f', Path({str(folder)!r}))\n"
        "import json; assert json.dumps(1) == '1'\n"
        "assert sys.path == before\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
