"""Secrets: named by a setting, read where they are needed, never shown.

A setting holds the *name* of an environment variable or of a file. The secret itself is read at each login: a
rotated one takes effect at the next, without a restart. Nothing that is printed, logged, compared, saved or
turned into JSON on the way contains it.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kafka.errors import KafkaConnectionError

from streamforest.errors import BrokerError, ConfigError

log = logging.getLogger(__name__)

HIDDEN = "[hidden]"
_MAX_BYTES = 65_536


class LoginError(BrokerError, KafkaConnectionError):  # type: ignore[misc]
    """Nothing to log in with. To kafka-python, in whose network thread it is raised, the connection has
    failed and is to be tried again; any other error would end the task that looks after the connection.
    """

    def __str__(self) -> str:
        return str(self.args[0])


class Secret:
    """A text that only `reveal` gives away.

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
        """The secret as a str for a library; it still hides when it is printed or formatted."""
        return _Hidden(self._text)

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not saved, sent or copied")


class _Hidden(str):
    """A str for a library's settings: it can be used as any other, and prints as hidden."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN


class CurrentSecret(_Hidden):
    """A secret that knows where it is kept: `read_again` is what is there now."""

    __slots__ = ("_place",)

    _place: SecretPlace

    @classmethod
    def at(cls, place: SecretPlace) -> CurrentSecret:
        """What a place holds now; ConfigError if it cannot be read."""
        secret = cls(str.__str__(place.read().reveal()))
        secret._place = place
        return secret

    def read_again(self) -> str:
        """What the place holds now; what it held before, while somebody is replacing the file."""
        try:
            return self._place.read().reveal()
        except ConfigError as error:
            log.warning("%s; the secret that was read before is used", error)
            return self


@dataclass(frozen=True)
class SecretPlace:
    """Where a secret is kept: an environment variable, or a file.

    Messages name the setting and never its value: somebody may have written the password itself there.
    """

    setting: str
    """Dotted key of the setting that names the variable or file, for messages."""
    variable: str | None = None
    file: Path | None = None

    def read(self) -> Secret:
        """Read the secret now; ConfigError says what is wrong with the variable or file."""
        if self.variable is not None:
            text = os.environ.get(self.variable)
            if text is None:
                raise ConfigError(
                    f"{self.setting}: the environment has no variable of the name given there "
                    "(not shown); set it, or give another name"
                )
        else:
            assert self.file is not None
            text = self._content(self.file)
        if not text:
            raise ConfigError(f"{self.setting}: the variable or file named there is empty")
        return Secret(text)

    def current(self) -> CurrentSecret:
        """The secret for a client that lives long: it can be read again.

        A run makes new clients whenever its broker was away, and somebody may be replacing the file just
        then: what was read before is used. ConfigError if nothing was.
        """
        try:
            _read_before[self] = CurrentSecret.at(self)
        except ConfigError as error:
            if self.file is None or self not in _read_before:
                raise
            log.warning("%s; the secret that was read before is used", error)
        return _read_before[self]

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
            raise ConfigError(f"{self.setting}: the file named there is not UTF-8 text") from None
        return text.removesuffix("\n").removesuffix("\r")  # editors end a file with a line


_read_before: dict[SecretPlace, CurrentSecret] = {}
"""Not in the place itself, which is part of the settings: those are compared, printed and copied."""


class HideLogin(logging.Filter):
    """Removes logins and raw bytes from kafka-python's debug records.

    At that level kafka-python logs every request: with PLAIN, the password.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with a replacement for what it must not say."""
        if isinstance(record.args, tuple):
            record.args = tuple(_harmless(argument) for argument in record.args)
        return True


_LOGGERS_OF_REQUESTS = ("kafka.net.connection", "kafka.protocol.parser")


def hide_logins() -> None:
    """Make sure that no log handler of this process gets a login, at any level."""
    for name in _LOGGERS_OF_REQUESTS:
        logger = logging.getLogger(name)
        if not any(isinstance(present, HideLogin) for present in logger.filters):
            logger.addFilter(HideLogin())


def _harmless(argument: Any) -> Any:
    if isinstance(argument, bytes | bytearray | memoryview):
        return f"<{len(argument)} bytes>"
    kind = type(argument).__name__
    return f"<{kind}>" if kind.startswith("Sasl") else argument
