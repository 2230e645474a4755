"""A report as one HTML file that needs nothing else: styles, scripts, uPlot and the numbers are in it.

Class names are strangers' texts. They are in the file as JSON only, with every `<` escaped, and reach the
document by `textContent`. The content-security policy allows exactly the scripts and styles of this file, by
their hashes, and nothing from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import time
from importlib.resources import files
from typing import Any

from streamforest._version import __version__
from streamforest.text import printable

_SHARED = files("streamforest.observe.page").joinpath("assets")
_OWN = files("streamforest.results").joinpath("assets")


def page(numbers: dict[str, Any], title: str, source: str) -> bytes:
    """The report. `source` says where the predictions came from."""
    styles = [_text(_SHARED, "uplot.css"), _text(_SHARED, "page.css"), _text(_OWN, "report.css")]
    scripts = [_text(_SHARED, "uplot.js"), _text(_SHARED, "charts.js"), _text(_OWN, "report.js")]
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    )
    about = {
        "source": printable(source),
        "version": __version__,
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    parts = {
        "POLICY": html.escape(policy),
        "TITLE": html.escape(printable(title, 200)),
        "STYLES": "\n".join(f"<style>{one}</style>" for one in styles),
        "SCRIPTS": "\n".join(f"<script>{one}</script>" for one in scripts),
        "DATA": _data({"about": about, **numbers}),
    }
    template = _text(_OWN, "report.html")
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], template).encode()


def _text(folder: Any, name: str) -> str:
    return str(folder.joinpath(name).read_text(encoding="utf-8"))


def _hashes(texts: list[str]) -> str:
    found = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{one}'" for one in found)


def _data(numbers: dict[str, Any]) -> str:
    """JSON that can stand in a page whatever is in it."""
    text = json.dumps(numbers, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
