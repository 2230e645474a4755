"""The OpenAPI document of a server: what it answers to, and with what."""

from __future__ import annotations

from typing import Any

import msgspec

from streamforest._version import __version__
from streamforest.io.codec.events import Event
from streamforest.serve.answering import Answer, Refusal
from streamforest.serve.labels import Published
from streamforest.serve.problems import ProblemBody

_STATUSES = {
    "400": "The body or the query is wrong in itself.",
    "401": "The token is missing or wrong.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large, or has too many events.",
    "415": "The format of the body is not read.",
    "421": "The server has no such name (without a token only).",
    "422": "The one event is no event.",
    "429": "More requests than `serve.max_requests_per_second`.",
    "503": "Not now: loading, too far behind, not yet at `at_least`, busy, or about to stop.",
}


def document(max_events: int, labels: bool, guarded: bool) -> dict[str, Any]:
    """The document, for a server that takes labels or not, and asks for a token or not."""
    (event, answer, refusal, problem, published), components = msgspec.json.schema_components(
        [Event, Answer, Refusal, ProblemBody, Published],
        ref_template="#/components/schemas/{name}",
    )
    several = {"type": "array", "items": event, "maxItems": max_events}
    paths: dict[str, Any] = {
        "/predict": {
            "post": {
                "operationId": "predict",
                "summary": "Predict one event, or an array of them; nothing is learned.",
                "parameters": [
                    _parameter("at_least", "Answer only from this commit on.", 0, 2**63 - 1),
                    _parameter("wait_seconds", "How long to wait for it; 5 by default.", 0, 30),
                    _parameter("top", "How many classes to list.", 1, 1_000),
                ],
                "requestBody": _content({"oneOf": [event, several]}),
                "responses": _responses(answer, refusal, problem, guarded),
            }
        },
        "/model": _get("model", "Which model answers, and what it has learned.", problem, guarded),
        "/metrics": _get("metrics", "Metrics for Prometheus.", problem, guarded),
        "/openapi.json": _get("openapi", "This document.", problem, guarded),
        "/livez": _get("livez", "Whether the process works.", problem, False),
        "/readyz": _get("readyz", "Whether to send requests here.", problem, False),
    }
    if labels:
        paths["/labels"] = {
            "post": {
                "operationId": "labels",
                "summary": "Publish a label, or an array of them, at least once.",
                "requestBody": _content({"oneOf": [{"type": "object"}, {"type": "array"}]}),
                "responses": _responses(published, refusal, problem, guarded),
            }
        }
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "streamforest serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }
    if guarded:
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return made


def _parameter(name: str, description: str, least: int, most: int) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    types = ("application/json", "application/msgpack")
    return {"required": True, "content": {kind: {"schema": schema} for kind in types}}


def _problems(problem: dict[str, Any], statuses: list[str]) -> dict[str, Any]:
    body = {"application/json": {"schema": problem}}
    return {status: {"description": _STATUSES[status], "content": body} for status in statuses}


def _responses(
    one: dict[str, Any], refusal: dict[str, Any], problem: dict[str, Any], guarded: bool
) -> dict[str, Any]:
    several = {"type": "array", "items": {"oneOf": [one, refusal]}}
    schema = {"oneOf": [one, several]}
    content = {kind: {"schema": schema} for kind in ("application/json", "application/msgpack")}
    wrong = [status for status in _STATUSES if (status != "401" or guarded)]
    answered = {"description": "One for one, an array for an array.", "content": content}
    return {"200": answered, **_problems(problem, wrong)}


def _get(name: str, summary: str, problem: dict[str, Any], guarded: bool) -> dict[str, Any]:
    wrong = ["400", "503", *(["401"] if guarded else [])]
    responses = {"200": {"description": summary}, **_problems(problem, wrong)}
    return {"get": {"operationId": name, "summary": summary, "responses": responses}}
