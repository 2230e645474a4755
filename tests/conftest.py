"""Shared by all tests."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# not the user's own cache: a test run leaves nothing behind there
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / "streamforest-tests"))

pytest_plugins = ["streamforest.testing.plugin"]
