"""Loads and compiles everything that a consumer needs, for the process that forks consumers.

A test that kills a consumer fifty times would otherwise spend most of its time on imports.
"""

from __future__ import annotations

from importlib import import_module

from streamforest import ConsistentForestClassifier, OnlineForestClassifier

import_module("streamforest.runtime.factory")
import_module("river.preprocessing")
for _forest in (ConsistentForestClassifier(n_trees=2), OnlineForestClassifier(n_trees=2)):
    _forest.warm_up()
