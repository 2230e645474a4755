"""A plain server as people write it: FastAPI, a River model in memory, one event for each request.

It runs as a process of its own: `python -m streamforest.bench.serving.plain PORT EVENTS`. The model learns
EVENTS events of the data set before the server listens.
"""

from __future__ import annotations

import sys
from typing import Any

from river import forest

from streamforest.bench.serving.events import training_events


def trained(events: int) -> Any:
    """A River forest that has learned the first events of the data set."""
    model = forest.ARFClassifier(n_models=10, seed=1)
    for x, y in training_events(events):
        model.learn_one(x, y)
    return model


def serve(port: int, events: int) -> None:
    """Answer until killed."""
    import uvicorn
    from fastapi import FastAPI

    model, app = trained(events), FastAPI()

    @app.post("/predict")
    async def predict(event: dict[str, Any]) -> dict[str, Any]:
        probabilities = model.predict_proba_one(event["x"])
        label = max(probabilities, key=probabilities.get, default=None)
        return {"label": label, "top": sorted(probabilities.items(), key=lambda one: -one[1])[:3]}

    @app.get("/readyz")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning")


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
