"""Values of Parquet and Avro as a message would have them."""

from __future__ import annotations

import math
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID


def plain_value(value: Any) -> Any:
    """A value of any column: numbers, texts, dates, lists and objects.

    NaN and NaT are missing; a duration is seconds, a time of day seconds since midnight; an Arrow map is an
    object.

    >>> plain_value([("a", 1), ("b", float("nan"))]), plain_value(timedelta(minutes=2)), plain_value(time(1))
    ({'a': 1, 'b': None}, 120.0, 3600.0)
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {str(name): plain_value(one) for name, one in value.items()}
    if isinstance(value, list):
        if value and all(type(one) is tuple and len(one) == 2 for one in value):
            return {str(name): plain_value(one) for name, one in value}
        return [plain_value(one) for one in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, time):
        return (value.hour * 60 + value.minute) * 60 + value.second + value.microsecond / 1e6
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date | Decimal):
        return None if value != value else value
    return value
