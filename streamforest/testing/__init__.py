"""A test kit for pipelines: a real broker, topics, and a consumer that dies at a chosen point.

Load it with `pytest_plugins = ["streamforest.testing.plugin"]`, or use its parts directly.
"""

from streamforest.io.failpoints import NAMES as FAILPOINTS
from streamforest.testing.broker.server import Broker
from streamforest.testing.process import Consumer
from streamforest.testing.secure import SecureBroker

__all__ = ["FAILPOINTS", "Broker", "Consumer", "SecureBroker"]
