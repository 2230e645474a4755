"""Secrets: named by a setting, read where they are needed, never shown.

A setting holds the *name* of an environment variable or of a file. The secret itself is read each time a
client is made, so that a rotated one is picked up at the next connection, and nothing that is printed,
logged, compared, saved or turned into JSON on the way has it.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from streamforest.errors import ConfigError

HIDDEN = "[hidden]"
_MAX_BYTES = 65_536


class Secret:
    """A text that shows itself only to `reveal`.

    >>> secret = Secret("open sesame")
    >>> secret, str(secret), f"{secret}", "%s" % secret, secret.reveal() == "open sesame"
    ([hidden], '[hidden]', '[hidden]', '[hidden]', True)
    >>> import json; json.dumps({"password": secret})
    Traceback (most recent call last):
    ...
    TypeError: Object of type Secret is not JSON serializable
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret as a text that still hides when it is shown, for a library that wants a str."""
        return _Hidden(self._text)

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not saved, sent or copied")


class _Hidden(str):
    """A str for a library's settings: its content is used, what is printed of it is not."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN


@dataclass(frozen=True)
class SecretPlace:
    """Where a secret is kept: a variable of the environment, or a file.

    Messages name the setting and never its value: who writes the password itself where its place
    belongs must not find it in a log.
    """

    setting: str
    """Dotted key of the setting that names the place, for messages."""
    variable: str | None = None
    file: Path | None = None

    def read(self) -> Secret:
        """The secret as of now; ConfigError says what is wrong with the place."""
        if self.variable is not None:
            text = os.environ.get(self.variable)
            if text is None:
                raise ConfigError(
                    f"{self.setting}: the environment has no variable of the name given there "
                    "(not shown); set it, or name another one"
                )
        else:
            assert self.file is not None
            text = self._content(self.file)
        if not text:
            raise ConfigError(f"{self.setting}: what it names is empty; a secret stands there")
        return Secret(text)

    def _content(self, file: Path) -> str:
        try:
            with file.open("rb") as opened:
                raw = opened.read(_MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(
                f"{self.setting}: the file named there (not shown) cannot be read: {error.strerror}"
            ) from None
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"{self.setting}: the file named there is too large for a secret")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ConfigError(f"{self.setting}: the file named there is no UTF-8 text") from None
        return text.removesuffix("\n").removesuffix("\r")  # editors end a file with a line


class HideLogin(logging.Filter):
    """Takes logins and raw bytes out of kafka-python's own debug records.

    At that level it writes out every request: with PLAIN, the password.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes; what it must not say is replaced."""
        if isinstance(record.args, tuple):
            record.args = tuple(_harmless(argument) for argument in record.args)
        return True


_TALKATIVE = ("kafka.net.connection", "kafka.protocol.parser")


def hide_logins() -> None:
    """See that no log handler of the process gets a login, whatever level it asks for."""
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        if not any(isinstance(present, HideLogin) for present in logger.filters):
            logger.addFilter(HideLogin())


def _harmless(argument: Any) -> Any:
    if isinstance(argument, bytes | bytearray | memoryview):
        return f"<{len(argument)} bytes>"
    kind = type(argument).__name__
    return f"<{kind}>" if kind.startswith("Sasl") else argument
