"""Prometheus metrics of a server: requests, their time, events answered, and how far behind it is."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from streamforest.serve.batching import Model

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class ServeMetrics:
    """What a server counts; paths are those it knows, so that labels are bounded."""

    def __init__(self, model: Model) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "streamforest_serve_requests_total",
            "Requests by path and status",
            ["path", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "streamforest_serve_request_seconds",
            "Time from the head of a request to its answer",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._events = Counter(
            "streamforest_serve_events_total",
            "Events of requests, by what became of them",
            ["outcome"],
            registry=self.registry,
        )
        self._outcomes = [self._events.labels(outcome) for outcome in ("answered", "refused")]
        self._by_answer: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        """What each path and status counts in: to look it up by its labels takes longer than to count."""
        behind = Gauge(
            "streamforest_serve_behind_seconds",
            "All commits made so many seconds ago are in the answers",
            registry=self.registry,
        )
        behind.set_function(lambda: _or(model.behind_seconds(), float("inf")))
        commit = Gauge(
            "streamforest_serve_commit",
            "The commit that answers are of; -1 where there is none",
            registry=self.registry,
        )
        commit.set_function(lambda: float(model.commit))

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        found = self._by_answer.get((path, status))
        if found is None:
            found = self._requests.labels(path, str(status)), self._seconds.labels(path)
            self._by_answer[path, status] = found
        count, times = found
        count.inc()
        times.observe(seconds)

    def events(self, answered: int, refused: int) -> None:
        """So many events of a request were answered, and so many were none."""
        for outcome, number in zip(self._outcomes, (answered, refused)):
            outcome.inc(number)

    def exposition(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
