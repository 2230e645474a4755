"""One forest whose trees are divided over actors, on one machine or on many; bit for bit the same forest.

`shard.py` is what an actor holds, `driver.py` what the forest does instead of calling its own trees, and
`ray_actors.py` the only module that knows Ray.
"""
