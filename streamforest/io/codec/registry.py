"""Messages in a schema registry's wire format: a zero byte, the schema's number, then Avro or JSON.

A schema is asked for once and kept in a file of the run's folder, beside the snapshots: recovery reads the
file, and needs no registry. That a number is unknown to the registry is kept too, since the same message must
always become the same event. A registry that does not answer is no reason to refuse messages: the run ends
with an error that says so, and the next one goes on at the last commit.
"""

from __future__ import annotations

import http.client
import io
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError, EventError, RecoveryError, StreamForestError
from streamforest.io.codec.events import Bounds, FieldsDecoder, check_size, fields_decoder
from streamforest.io.codec.plain import plain_value
from streamforest.private_files import FILE_MODE, make_folder, replace
from streamforest.text import printable, shown

log = logging.getLogger(__name__)

REGISTRY_FORMATS = ("avro", "json-schema")
_FRAME = 5  # bytes before the content
_MAX_SCHEMA = 4 << 20
_MAX_UNKNOWN = 1_000
"""Numbers of unknown schemas that are kept; beyond them no new schema is asked for."""
_TIMEOUT = 10.0
_ATTEMPTS = 5
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class SchemaStore:
    """Schemas by number: in memory, else in a file, else from the registry."""

    def __init__(
        self,
        url: str,
        folder: Path,
        mode: int = FILE_MODE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url, self._folder, self._mode = url.rstrip("/"), folder, mode
        self._sleep = sleep
        self._parsed: dict[int, Any] = {}

    def schema(self, number: int) -> Any:
        """The schema, parsed; EventError if the registry does not know it, or it is not Avro."""
        found = self._parsed.get(number)
        if found is None:
            found = self._parsed[number] = _parse(number, self._text(number))
        return found

    def _text(self, number: int) -> dict[str, Any]:
        """What the registry says of a schema, from its file if there is one."""
        path, unknown = self._folder / f"{number}.json", self._folder / f"{number}.unknown"
        if path.exists():
            return _read(path)
        if unknown.exists():
            raise _unknown(number)
        if len(list(self._folder.glob("*.unknown"))) >= _MAX_UNKNOWN:
            raise EventError(
                f"invalid event: schema {number} was not asked for, after {_MAX_UNKNOWN:,} unknown ones",
                "version",
            )
        answer = self._ask(number)
        make_folder(self._folder, self._mode)
        if answer is None:
            replace(unknown, b"", self._mode)
            raise _unknown(number)
        replace(path, answer, self._mode)
        return _read(path)

    def _ask(self, number: int) -> bytes | None:
        """The registry's answer; None if it does not know the schema."""
        url = f"{self._url}/schemas/ids/{number}"
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(2.0**attempt / 4)
            try:
                request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
                with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                    body: bytes = response.read(_MAX_SCHEMA + 1)
                if len(body) <= _MAX_SCHEMA and isinstance(json.loads(body), dict):
                    return body
                problem = "its answer is no schema"
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                problem = f"HTTP status {error.code}"
            except (OSError, http.client.HTTPException, ValueError) as error:
                problem = printable(f"{type(error).__name__}: {error}", 200)
            log.warning("events.registry: %s: %s", url, problem)
        raise StreamForestError(
            f"events.registry = {shown(self._url)}: schema {number} cannot be read ({problem}); start "
            "again when it answers: the run goes on at its last commit"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        answer = json.loads(path.read_bytes())
        if not isinstance(answer, dict):
            raise ValueError("it is no object")
    except (OSError, ValueError) as error:
        raise RecoveryError(
            f"{path}: cannot be read ({error}); remove the file to have the registry asked again"
        ) from error
    return answer


def _parse(number: int, answer: dict[str, Any]) -> Any:
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise EventError(
            f"invalid event: schema {number} is {shown(kind)}, but events.format = 'avro'",
            "version",
        )
    if answer.get("references"):
        raise EventError(
            f"invalid event: schema {number} refers to other schemas; use events.decoder", "version"
        )
    try:
        return _avro().parse_schema(json.loads(answer["schema"]))
    except Exception as error:  # fastavro raises whatever a wrong schema leads to
        raise EventError(
            f"invalid event: schema {number} is not valid: {printable(str(error), 200)}", "version"
        ) from None


def _unknown(number: int) -> EventError:
    return EventError(f"invalid event: the registry knows no schema {number}", "version")


def _avro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise ConfigError(
            "events.format = 'avro' needs fastavro: pip install 'streamforest[avro]'"
        ) from None
    return fastavro


def avro_decoder(store: SchemaStore, bounds: Bounds) -> FieldsDecoder:
    """A function that turns an Avro message into its fields; it raises only `EventError`, and
    StreamForestError if the registry does not answer.
    """
    read = _avro().schemaless_reader

    def decode(value: bytes | None) -> dict[str, Any]:
        number, content = _unframed(value, bounds)
        schema = store.schema(number)
        body = io.BytesIO(content)
        try:
            record = read(body, schema)
        except Exception as error:  # fastavro raises whatever wrong bytes lead to
            raise EventError(
                f"invalid event: not a record of schema {number}: {printable(str(error), 200)}",
                "undecodable",
            ) from None
        if body.read(1):
            raise EventError(
                f"invalid event: bytes are left over after the record of schema {number}", "invalid"
            )
        if not isinstance(record, dict):
            raise EventError(f"invalid event: schema {number} is not of a record", "invalid")
        return {name: plain_value(one) for name, one in record.items()}

    return decode


def framed_json_decoder(bounds: Bounds) -> FieldsDecoder:
    """The same for JSON with a JSON Schema. JSON has its types with it, so no schema is read."""
    decode_json = fields_decoder("json", bounds)

    def decode(value: bytes | None) -> dict[str, Any]:
        return decode_json(_unframed(value, bounds)[1])

    return decode


def _unframed(value: bytes | None, bounds: Bounds) -> tuple[int, bytes]:
    check_size(value, bounds)
    assert value is not None
    if len(value) < _FRAME or value[0] != 0:
        raise EventError(
            "invalid event: not in a registry's wire format: no zero byte and schema number",
            "undecodable",
        )
    return int.from_bytes(value[1:_FRAME], "big"), value[_FRAME:]
