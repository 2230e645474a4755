"""A test kit for pipelines: a real broker, topics, a consumer killed where you choose.

Load it with `pytest_plugins = ["streamforest.testing.plugin"]`, or use the pieces by themselves.
"""

from streamforest.io.failpoints import NAMES as FAILPOINTS
from streamforest.testing.broker.server import Broker
from streamforest.testing.process import Consumer
from streamforest.testing.secure import SecureBroker

__all__ = ["FAILPOINTS", "Broker", "Consumer", "SecureBroker"]
