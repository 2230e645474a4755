"""Tests against real servers. `CI=true` makes a missing server a failure instead of a skip."""

from __future__ import annotations

pytest_plugins = ["streamforest.testing.plugin"]
